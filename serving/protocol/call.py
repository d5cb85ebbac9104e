"""What one request asks for, whichever wire it came by, and what it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import nearest
from ...runtime.graph import TensorType
from ...runtime.tensors.tensor import Port
from .datatypes import datatype_of, text_of
from .refusal import RefusedError

__all__ = [
    "DEFAULT_LEVEL",
    "Answer",
    "GivenTensor",
    "InferCall",
    "Requested",
    "SequencePlace",
    "check_call",
    "fitted",
]

Array = np.ndarray[Any, np.dtype[Any]]

DEFAULT_LEVEL = 8
"""The level of requests that name none; 1 is the most urgent."""


@dataclass(frozen=True)
class GivenTensor:
    """An input as the client sent it; ``field`` is where in the request."""

    name: str
    datatype: str
    array: Array
    field: str


@dataclass(frozen=True)
class Requested:
    """An output that is asked for.

    ``is_binary``: as raw bytes behind the JSON; ``class_count``: as that many classes, 0: as it is.
    """

    name: str
    is_binary: bool = False
    class_count: int = 0
    field: str = ""


@dataclass(frozen=True)
class SequencePlace:
    """Which sequence a request belongs to, and whether it is its first and its last."""

    id: int | str
    is_start: bool = False
    is_end: bool = False


@dataclass(frozen=True)
class InferCall:
    """An inference that was asked for.

    ``outputs`` empty: all, as raw bytes if ``is_binary``. ``timeout_us`` 0: none. ``level``:
    1 is the most urgent, 0 is the default. ``step_count``: of a generation, at most; 0: as many as
    the model's settings say. ``keeps_bytes``: elements of BYTES are bytes, and no texts.
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

    @property
    def priority(self) -> int:
        """The level as the runtime counts it: a higher number goes first, and 0 is the default."""
        return DEFAULT_LEVEL - self.level if self.level else 0

    @property
    def deadline_s(self) -> float | None:
        """The timeout in seconds; None: there is none."""
        return self.timeout_us / 1e6 if self.timeout_us else None


@dataclass(frozen=True)
class Answer:
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


def check_call(
    call: InferCall, inputs: Sequence[Port], outputs: Sequence[Port], model: str
) -> tuple[dict[str, Array], Sequence[Requested]]:
    """Return what a network is given, and the outputs that are asked for.

    Raises RefusedError for a name that the model does not have, one that is missing or given twice,
    and for another datatype or rank than the model's.
    """
    ports = {port.name: port for port in inputs}
    given: dict[str, Array] = {}
    for tensor in call.inputs:
        port = ports.get(tensor.name)
        if port is None:
            raise RefusedError(
                f"model {model!r} has no input {tensor.name!r}{nearest(tensor.name, ports)}; it "
                f"has {sorted(ports)}",
                field=f"{tensor.field}.name",
            )
        if tensor.name in given:
            raise RefusedError(f"{tensor.name!r} is given twice", field=f"{tensor.field}.name")
        _check_type(tensor, port)
        given[tensor.name] = tensor.array
    missing = sorted(ports.keys() - given.keys())
    if missing:
        raise RefusedError(f"{', '.join(map(repr, missing))} missing", field="inputs")
    return given, _checked_outputs(call, [port.name for port in outputs], model)


def fitted(call: InferCall, *, keeps_bytes: bool) -> InferCall:
    """Return a call whose elements of BYTES are what the model takes: bytes, or texts.

    It is the call itself unless the model was exchanged since the call was read. Raises
    RefusedError for what is no text.
    """
    if call.keeps_bytes == keeps_bytes:
        return call
    inputs = [
        replace(tensor, array=_texts(tensor, keeps_bytes=keeps_bytes))
        if tensor.datatype == "BYTES"
        else tensor
        for tensor in call.inputs
    ]
    return replace(call, inputs=inputs, keeps_bytes=keeps_bytes)


def _texts(tensor: GivenTensor, *, keeps_bytes: bool) -> Array:
    made = np.empty(tensor.array.size, object)
    for index, item in enumerate(tensor.array.ravel()):
        made[index] = item.encode() if keeps_bytes else text_of(item, f"{tensor.field}[{index}]")
    return made.reshape(tensor.array.shape)


def _check_type(tensor: GivenTensor, port: Port) -> None:
    wanted = port.type
    if not isinstance(wanted, TensorType):
        return
    datatype = datatype_of(wanted.dtype)
    if tensor.datatype != datatype:
        raise RefusedError(
            f"{tensor.name!r} is {datatype}, not {tensor.datatype}",
            field=f"{tensor.field}.datatype",
        )
    shape, wanted_shape = tensor.array.shape, wanted.shape
    if wanted_shape is None:
        return
    fits = len(shape) == len(wanted_shape) and all(
        not isinstance(want, int) or length == want
        for length, want in zip(shape, wanted_shape, strict=True)
    )
    if not fits:
        declared = [dim if isinstance(dim, int) else -1 for dim in wanted_shape]
        raise RefusedError(
            f"{tensor.name!r} has shape {declared}, not {list(shape)}",
            field=f"{tensor.field}.shape",
        )


def _checked_outputs(call: InferCall, names: Sequence[str], model: str) -> Sequence[Requested]:
    if not call.outputs:
        return [Requested(name, call.is_binary) for name in names]
    seen: set[str] = set()
    for requested in call.outputs:
        if requested.name not in names:
            raise RefusedError(
                f"model {model!r} has no output {requested.name!r}"
                f"{nearest(requested.name, names)}; it has {sorted(names)}",
                field=f"{requested.field}.name",
            )
        if requested.name in seen:
            raise RefusedError(
                f"{requested.name!r} is asked for twice", field=f"{requested.field}.name"
            )
        seen.add(requested.name)
    return call.outputs
