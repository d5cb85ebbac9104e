"""What one request asks for, whichever wire it came by, and what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import nearest
from ...runtime.graph import TensorType
from ...runtime.tensors.tensor import Port
from .datatypes import datatype_of, read_raw, text_of
from .refusal import RefusedError
from .shared_memory import Place, SharedInput

__all__ = [
    "DEFAULT_LEVEL",
    "Answer",
    "GivenTensor",
    "InferCall",
    "Requested",
    "SequencePlace",
    "Signature",
    "fitted",
    "with_shared",
]

Array = np.ndarray[Any, np.dtype[Any]]

DEFAULT_LEVEL = 8
"""The level of requests that name none; 1 is the most urgent."""


class GivenTensor(NamedTuple):
    """An input as the client sent it; ``field`` is where in the request."""

    name: str
    datatype: str
    array: Array
    field: str


class Requested(NamedTuple):
    """An output that is asked for.

    ``is_binary``: as raw bytes behind the JSON; ``class_count``: as that many classes, 0: as it is;
    ``place``: in shared memory, and not in the answer.
    """

    name: str
    is_binary: bool = False
    class_count: int = 0
    field: str = ""
    place: Place | None = None


@dataclass(frozen=True)
class SequencePlace:
    """Which sequence a request belongs to, and whether it is its first and its last."""

    id: int | str
    is_start: bool = False
    is_end: bool = False


class InferCall(NamedTuple):
    """An inference that was asked for.

    ``outputs`` empty: all, as raw bytes if ``is_binary``. ``timeout_us`` 0: none. ``level``:
    1 is the most urgent, 0 is the default. ``step_count``: of a generation, at most; 0: as many as
    the model's settings say. ``keeps_bytes``: elements of BYTES are bytes, and no texts.
    ``shared``: inputs that are not among the others yet.
    """

    inputs: Sequence[GivenTensor]
    outputs: Sequence[Requested] = ()
    id: str = ""
    level: int = 0
    timeout_us: int = 0
    is_binary: bool = False
    sequence: SequencePlace | None = None
    step_count: int = 0
    keeps_bytes: bool = False
    shared: Sequence[SharedInput] = ()

    @property
    def priority(self) -> int:
        """The level as the runtime counts it: a higher number goes first, and 0 is the default."""
        return DEFAULT_LEVEL - self.level if self.level else 0

    @property
    def deadline_s(self) -> float | None:
        """The timeout in seconds; None: there is none."""
        return self.timeout_us / 1e6 if self.timeout_us else None


class Answer(NamedTuple):
    """The outputs of an inference, in the order in which they were asked for.

    ``is_of_stream``: one request may have several, of which this ``is_last`` or not.
    """

    model: str
    version: str
    id: str
    outputs: Sequence[tuple[Requested, Array]]
    is_last: bool = True
    is_of_stream: bool = False

    @property
    def size_bytes(self) -> int:
        """How many bytes the outputs have together; texts count as references."""
        return sum(array.nbytes for _, array in self.outputs)


class Signature:
    """What one version of a model takes and gives, which each call is held against."""

    def __init__(self, model: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        self._model = model
        self._inputs = {port.name: _Wanted.of(port) for port in inputs}
        self._output_names = [port.name for port in outputs]
        self._all_outputs = tuple(
            [Requested(name, is_binary) for name in self._output_names]
            for is_binary in (False, True)
        )

    def check(self, call: InferCall) -> tuple[dict[str, Array], Sequence[Requested]]:
        """Return what a network is given, and the outputs that are asked for.

        Raises RefusedError for a name that the model does not have, one that is missing or given
        twice, and for another datatype or rank than the model's.
        """
        given: dict[str, Array] = {}
        for tensor in call.inputs:
            name = tensor.name
            wanted = self._inputs.get(name)
            if wanted is None:
                raise RefusedError(
                    f"model {self._model!r} has no input {name!r}{nearest(name, self._inputs)}; it "
                    f"has {sorted(self._inputs)}",
                    field=f"{tensor.field}.name",
                )
            if name in given:
                raise RefusedError(f"{name!r} is given twice", field=f"{tensor.field}.name")
            wanted.check(tensor)
            given[name] = tensor.array
        if len(given) < len(self._inputs):
            missing = sorted(self._inputs.keys() - given.keys())
            raise RefusedError(f"{', '.join(map(repr, missing))} missing", field="inputs")
        if not call.outputs:
            return given, self._all_outputs[call.is_binary]
        return given, self._checked_outputs(call)

    def _checked_outputs(self, call: InferCall) -> Sequence[Requested]:
        seen: set[str] = set()
        for requested in call.outputs:
            name, names = requested.name, self._output_names
            if name not in names:
                raise RefusedError(
                    f"model {self._model!r} has no output {name!r}{nearest(name, names)}; it has "
                    f"{sorted(names)}",
                    field=f"{requested.field}.name",
                )
            if name in seen:
                raise RefusedError(f"{name!r} is asked for twice", field=f"{requested.field}.name")
            seen.add(name)
        return call.outputs


class _Wanted(NamedTuple):
    """What an input is to be; None: anything. A length of -1 is any length."""

    datatype: str | None
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, port: Port) -> _Wanted:
        if not isinstance(port.type, TensorType):
            return cls(None, None)
        shape = port.type.shape
        lengths = None if shape is None else [dim if isinstance(dim, int) else -1 for dim in shape]
        return cls(datatype_of(port.type.dtype), None if lengths is None else tuple(lengths))

    def check(self, tensor: GivenTensor) -> None:
        wanted, shape = self.shape, tensor.array.shape
        if tensor.datatype != self.datatype and self.datatype is not None:
            raise RefusedError(
                f"{tensor.name!r} is {self.datatype}, not {tensor.datatype}",
                field=f"{tensor.field}.datatype",
            )
        if wanted is None or shape == wanted:
            return
        fits = len(shape) == len(wanted) and all(
            want in (-1, length) for length, want in zip(shape, wanted, strict=True)
        )
        if not fits:
            raise RefusedError(
                f"{tensor.name!r} has shape {list(wanted)}, not {list(shape)}",
                field=f"{tensor.field}.shape",
            )


def fitted(call: InferCall, *, keeps_bytes: bool) -> InferCall:
    """Return a call whose elements of BYTES are what the model takes: bytes, or texts.

    It is the call itself unless the model was exchanged since the call was read. Raises
    RefusedError for what is no text.
    """
    if call.keeps_bytes == keeps_bytes:
        return call
    inputs = [
        tensor._replace(array=_texts(tensor, keeps_bytes=keeps_bytes))
        if tensor.datatype == "BYTES"
        else tensor
        for tensor in call.inputs
    ]
    return call._replace(inputs=inputs, keeps_bytes=keeps_bytes)


def with_shared(call: InferCall) -> InferCall:
    """Return a call with the inputs that are in shared memory, as they are there now.

    Raises RefusedError for those that are not there, and that are no tensors of their type.
    """
    read = [
        GivenTensor(
            each.name,
            each.datatype,
            read_raw(
                each.place.read(),
                each.datatype,
                each.shape,
                each.field,
                keeps_bytes=call.keeps_bytes,
            ),
            each.field,
        )
        for each in call.shared
    ]
    return call._replace(inputs=[*call.inputs, *read], shared=())


def _texts(tensor: GivenTensor, *, keeps_bytes: bool) -> Array:
    made = np.empty(tensor.array.size, object)
    for index, item in enumerate(tensor.array.ravel()):
        made[index] = item.encode() if keeps_bytes else text_of(item, f"{tensor.field}[{index}]")
    return made.reshape(tensor.array.shape)
