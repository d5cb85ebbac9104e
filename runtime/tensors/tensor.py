"""Tensors: what goes into a network and comes out, checked against its ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import TensorError, nearest
from ...executors import find_shortage
from ..graph import (
    DType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    ValueType,
    shape_text,
)
from .array_like import as_array
from .device_array import AdoptArray, memory_place
from .kept_array import KeptArray
from .late_inputs import Late, LateInputs

__all__ = [
    "Port",
    "Signature",
    "Tensor",
    "check_can_be_written",
    "check_inputs",
    "check_symbols",
    "check_value",
    "inputs_by_name",
    "ports_of",
    "signature_reader",
]

Signature = tuple[tuple[int, ...] | None, ...]
"""The shape of each input in order; None for what is no tensor."""


@dataclass(frozen=True)
class Port:
    """A named input or output of a network; ``type`` None says that nothing is known of it."""

    name: str
    type: ValueType | None

    @property
    def dtype(self) -> np.dtype | None:
        """The numpy type of a tensor port, else None."""
        return self.type.dtype.numpy if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """The shape with symbols (str) and unknown lengths (None); None if the rank is unknown."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    def __str__(self) -> str:
        return f"{self.name}: {self.type or '?'}"


def ports_of(values: Iterable[Value]) -> tuple[Port, ...]:
    """Describe a graph's inputs or outputs."""
    return tuple(Port(value.name, value.type) for value in values)


class Tensor:
    """A handle on a tensor: ``data`` is its array on the host, or None before there is one.

    A request's own handle stays the same object while its content changes with each run. One made
    by the user wraps memory that stays the user's; a list of arrays is a sequence. Works where
    numpy wants an array, and by DLPack.

    One of results, as OUTPUT_LOCATION asks for, may stay in the memory of its device. A network
    there reads it in place; ``data``, ``numpy()``, numpy, and networks elsewhere download it, once,
    and block meanwhile. Its memory goes back when it is dropped, also after its network was
    closed; a closed Core has none left, and reading raises ClosedError. Thread-safe.

    ```python
    with aioinfer.Core() as core, core.load_network("model.onnx", "CPU") as network:
        request = network.create_infer_request()
        image = np.zeros((1, 1, 8, 8), np.float32)
        request.set_tensor("image", aioinfer.Tensor(image))  # no copy
        await request.infer()
        print(request.get_tensor("logits").shape)
    ```
    """

    def __init__(self, data: Any = None, *, port: Port | None = None) -> None:
        self._port = port
        is_taken = data is None or isinstance(data, KeptArray) or _is_sequence(data)
        self._held: Any = data if is_taken else np.asarray(data)

    @property
    def data(self) -> Any:
        """Its array on the host, read-only if it was downloaded; a list; or None.

        May be set to what a Tensor can be made of, or to a Tensor, whose content it then has, too.
        """
        held = self._held
        return held.host() if isinstance(held, KeptArray) else held

    @data.setter
    def data(self, given: Any) -> None:
        self._held = given._held if isinstance(given, Tensor) else given

    def numpy(self) -> np.ndarray:
        """Return the content on the host, as ``np.asarray`` does: what is on a device, read-only.

        The first call downloads that, and blocks. Raises DeviceError and ClosedError.
        """
        return np.asarray(self)

    @property
    def device(self) -> str | None:
        """The device that keeps the content in memory of its own; None: the host has it."""
        return self._held.device if isinstance(self._held, KeptArray) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape now; lengths that are not known before the first run are 0."""
        if isinstance(self._held, np.ndarray | KeptArray):
            return tuple(self._held.shape)
        declared = self._port.shape if self._port is not None else None
        return tuple(dim if isinstance(dim, int) else 0 for dim in declared or (0,))

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        if isinstance(self._held, np.ndarray | KeptArray):
            return np.dtype(self._held.dtype)
        declared = self._port.dtype if self._port is not None else None
        return np.dtype(np.float32) if declared is None else declared

    @property
    def size(self) -> int:
        """How many elements it holds; 0 before the first run of a dynamic output."""
        return self._held.size if isinstance(self._held, np.ndarray | KeptArray) else 0

    @property
    def content(self) -> Any:
        """What it stands for as an input: an array, on the host or a KeptArray, or a list.

        No rows if it is open and has none yet; None if it is neither.
        """
        if self._held is None and self._port is not None and 0 in self.shape:
            return np.zeros(self.shape, self.dtype)
        return self._held

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        data = self.data
        array = data if data is not None else np.zeros(self.shape, self.dtype)
        return np.array(array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        held = self._held
        return (held if isinstance(held, KeptArray) else np.asarray(self)).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        held = self._held
        return (held if isinstance(held, KeptArray) else np.asarray(self)).__dlpack_device__()

    def __repr__(self) -> str:
        place = "" if self.device is None else f" on {self.device}"
        return f"<Tensor {self.dtype} {shape_text(self.shape)}{place}>"


def check_inputs(
    given: Any,
    ports: Sequence[Port],
    network: str,
    adopt: AdoptArray | None = None,
    *,
    is_run: bool = False,
) -> dict[str, Any]:
    """Turn what a caller gave into name -> array, checked against the ports.

    ``given``: a mapping by name, a sequence in order, or one array for a network with one input.
    Arrays are taken as they are, without a copy, in any memory order; those in a device's memory
    by ``adopt``. What another device has kept is downloaded, which blocks; of the inputs of a run
    (``is_run``) it is left for later, and they are LateInputs. Raises TensorError for a missing,
    unknown or doubled name, a wrong dtype or shape, symbols that disagree, and memory that the
    network's device cannot read.
    """
    named = inputs_by_name(given, ports, network)
    known = {port.name for port in ports}
    for name in named:
        if name not in known:
            raise TensorError(
                f"network {network!r} has no input {name!r}{nearest(str(name), known)}; its inputs "
                f"are {_listed(ports)}",
                tensor=str(name),
                network=network,
            )
    symbols: dict[str, tuple[int, str]] = {}
    arrays: dict[str, Any] = {}
    late: list[str] = []
    for port in ports:
        if port.name not in named:
            if isinstance(port.type, OptionalType):
                arrays[port.name] = None
                continue
            raise TensorError(
                f"input {port.name!r} of network {network!r} is missing; it wants {_listed(ports)}",
                tensor=port.name,
                network=network,
            )
        try:
            value = named[port.name]
            place = f"input of network {network!r}"
            checked = check_value(value, port, place, adopt, may_stay=is_run)
            if isinstance(checked, Late):
                checked = checked.kept
                late.append(port.name)
            arrays[port.name] = checked
            _bind_symbols(arrays[port.name], port, symbols)
        except TensorError as error:
            error.within(network=network)
            raise
    return LateInputs(arrays, tuple(late)) if late else arrays


def check_symbols(arrays: Mapping[str, Any], ports: Sequence[Port]) -> None:
    """Raise TensorError if one symbol of the ports stands for two lengths in checked arrays."""
    symbols: dict[str, tuple[int, str]] = {}
    for port in ports:
        _bind_symbols(arrays[port.name], port, symbols)


def check_value(
    given: Any,
    port: Port,
    place: str,
    adopt: AdoptArray | None = None,
    *,
    may_stay: bool = False,
) -> Any:
    """Return the array, list or None that a port takes; TensorError names port and place.

    An array is never copied, except that text becomes an object array of str. One in a device's
    memory goes through ``adopt``, and is refused where there is none; an output that was kept there
    is downloaded, which blocks, or comes back as Late if it ``may_stay``.
    """
    if isinstance(given, Tensor):
        given = given.content
    if isinstance(given, KeptArray):
        _checked(given, port, place)
        is_tensor = isinstance(port.type, TensorType)
        if adopt is not None and (port.type is None or is_tensor):
            adopted = adopt(given, f"{place}: {port.name!r}")
            if adopted is not None:
                return adopted
        if may_stay and not given.is_on_host and is_tensor:
            return Late(given)
        given = given.host()
    if port.type is None and (given is None or isinstance(given, list)):
        return given
    if port.type is not None and not isinstance(port.type, TensorType):
        return _sequence_or_optional(given, port, place)
    if given is None:
        raise TensorError(f"{place}: {port.name!r} is None; it wants {port.type}", tensor=port.name)
    dtype = None if port.type is None else port.type.dtype
    try:
        memory = memory_place(given)
        array: Any = as_array(given, dtype) if memory is None else None
    except Exception as error:  # the object's own __array__ may raise anything
        lacking = find_shortage(error, f"{place}: making an array of {port.name!r}")
        if lacking is not None:
            raise lacking from error
        raise TensorError(
            f"{place}: {port.name!r} cannot be made an array of {port.type or 'any type'}: {error}",
            tensor=port.name,
        ) from error
    if memory is not None:
        if adopt is None:
            raise TensorError(
                f"{place}: {port.name!r} lies in the memory of {memory}, and the host's is wanted; "
                f"give a copy there, as .get() or .cpu() make",
                tensor=port.name,
            )
        array = adopt(given, f"{place}: {port.name!r}")
    return _checked(array, port, place)


def _checked(array: Any, port: Port, place: str) -> Any:
    """Return an array, on the host or a device, once it is known to fit the port."""
    if isinstance(port.type, TensorType):
        _check_dtype(array, port.type.dtype, port, place)
        _check_shape(array.shape, port, place)
    return array


def check_can_be_written(array: Any, given: Any, name: str) -> None:
    """Raise TensorError for an array that no output can be written into; made from ``given``."""
    if not isinstance(array, np.ndarray):
        if not getattr(array, "is_writable", True):
            raise TensorError(
                f"output {name!r} cannot be bound to a {type(given).__name__} that is read-only, "
                f"or not contiguous; give one that the device can write as a whole",
                tensor=name,
            )
        return
    if not array.flags.writeable:
        raise TensorError(f"output {name!r} cannot be bound to a read-only array", tensor=name)
    if array is not given and array.size and not np.may_share_memory(array, np.asarray(given)):
        raise TensorError(
            f"output {name!r} cannot be bound to a {type(given).__name__}, whose items would not "
            f"change; give an array of {array.dtype}",
            tensor=name,
        )


def signature_reader(ports: Sequence[Port]) -> Callable[[Mapping[str, Any]], Signature]:
    """Make a function that reads what a plan is specialised for from inputs by name."""
    names = [port.name if isinstance(port.type, TensorType) else None for port in ports]
    only = names[0] if len(names) == 1 else None
    if only is not None:
        return lambda arrays: (arrays[only].shape,)

    def read(arrays: Mapping[str, Any]) -> Signature:
        return tuple([None if name is None else arrays[name].shape for name in names])

    return read


def inputs_by_name(given: Any, ports: Sequence[Port], network: str) -> Mapping[Any, Any]:
    """Turn what a caller gave into name -> value as ``check_inputs`` does, and check no value."""
    if isinstance(given, Mapping):
        return given
    if given is None:
        raise TensorError(
            f"network {network!r} got None; it wants {_listed(ports)}", network=network
        )
    if isinstance(given, list | tuple) and not (
        len(ports) == 1 and not _looks_like_items(given, ports[0])
    ):
        if len(given) != len(ports):
            raise TensorError(
                f"network {network!r} has {len(ports)} inputs and got a sequence of {len(given)}; "
                f"it wants {_listed(ports)}",
                network=network,
            )
        return {port.name: item for port, item in zip(ports, given, strict=True)}
    if len(ports) != 1:
        raise TensorError(
            f"network {network!r} has {len(ports)} inputs and got one value; give a mapping by "
            f"name; it wants {_listed(ports)}",
            network=network,
        )
    return {ports[0].name: given}


def _looks_like_items(given: Sequence[Any], port: Port) -> bool:
    """True for [array], a single input in a list; False for an array written as nested numbers."""
    return len(given) == 1 and (
        hasattr(given[0], "__array__") or (port.shape is not None and len(port.shape) == 0)
    )


def _is_sequence(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(item, np.ndarray) for item in data)


def _check_dtype(array: Any, dtype: DType, port: Port, place: str) -> None:
    if array.dtype != dtype.numpy:
        hint = (
            "give strings" if dtype is DType.STRING else f"convert it with .astype('{dtype.numpy}')"
        )
        raise TensorError(
            f"{place}: {port.name!r} is {array.dtype}, and {dtype.label} is wanted; {hint}",
            tensor=port.name,
            dtype=str(array.dtype),
            wanted_dtype=dtype.label,
        )
    if dtype is DType.STRING:
        for item in array.reshape(-1):  # an iterator stops at 32 axes
            if not isinstance(item, str):
                raise TensorError(
                    f"{place}: {port.name!r} holds a {type(item).__name__}, and only str is wanted",
                    tensor=port.name,
                    dtype=type(item).__name__,
                    wanted_dtype=dtype.label,
                )


def _check_shape(shape: tuple[int, ...], port: Port, place: str) -> None:
    wanted = port.shape
    if wanted is None:
        return
    fits = len(shape) == len(wanted) and all(
        not isinstance(dim, int) or dim == length for dim, length in zip(wanted, shape, strict=True)
    )
    if not fits:
        raise TensorError(
            f"{place}: {port.name!r} has shape {shape_text(shape)}, and {shape_text(wanted)} is "
            f"wanted",
            tensor=port.name,
            shape=shape,
            wanted_shape=wanted,
        )


def _bind_symbols(array: Any, port: Port, symbols: dict[str, tuple[int, str]]) -> None:
    if port.shape is None or not hasattr(array, "shape"):
        return
    for dim, length in zip(port.shape, array.shape, strict=True):
        if not isinstance(dim, str):
            continue
        bound, owner = symbols.setdefault(dim, (length, port.name))
        if bound != length:
            raise TensorError(
                f"dimension {dim!r} is {bound} in input {owner!r} and {length} in input "
                f"{port.name!r}; it must be the same everywhere",
                tensor=port.name,
                shape=array.shape,
                wanted_shape=tuple(bound if other == dim else other for other in port.shape),
            )


def _sequence_or_optional(given: Any, port: Port, place: str) -> Any:
    if isinstance(port.type, OptionalType):
        if given is None:
            return None
        return check_value(given, Port(port.name, port.type.element), place)
    if isinstance(port.type, MapType):
        if not isinstance(given, Mapping):
            raise TensorError(
                f"{place}: {port.name!r} is a {type(given).__name__}, and a dict is wanted: "
                f"{port.type}",
                tensor=port.name,
            )
        return dict(given)
    if not isinstance(given, list | tuple):
        raise TensorError(
            f"{place}: {port.name!r} is a {type(given).__name__}, and a list is wanted: "
            f"{port.type}",
            tensor=port.name,
        )
    element = Port(port.name, port.type.element) if isinstance(port.type, SequenceType) else None
    return [item if element is None else check_value(item, element, place) for item in given]


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(map(str, ports)) or "no inputs"
