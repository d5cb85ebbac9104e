"""The body of an HTTP inference request: JSON, and raw tensors behind it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .call import GivenTensor, InferCall, Requested
from .datatypes import DATATYPES, read_raw, refuse_surrogates, refuse_too_big
from .fields import Fields, refuse_wrong_lengths
from .json_text import read_json, typed_reader
from .limits import Limits
from .parameters import read_request_parameters
from .refusal import RefusedError
from .shared_memory import Place, Regions, SharedInput, read_place

__all__ = ["read_elements", "read_infer_request"]

Array = np.ndarray[Any, np.dtype[Any]]

_FLAGS, _NUMBERS = {bool}, {int, float}
_RAW_ONLY = ("FP16", "BF16")


def read_infer_request(
    body: bytes | bytearray | memoryview,
    json_length: int | None,
    limits: Limits,
    *,
    keeps_bytes: bool = False,
    regions: Regions | None = None,
) -> InferCall:
    """Read the body of ``POST .../infer``.

    json_length: what the header Inference-Header-Content-Length says; None: all of it is JSON.
    keeps_bytes: elements of BYTES stay bytes, and need not be texts. regions: of shared memory;
    None: there are none. Arrays are views of the body, which must not change, where raw tensors are
    aligned. Raises RefusedError that names the field.
    """
    whole = memoryview(body).cast("B").toreadonly()
    end = len(whole) if json_length is None else json_length
    if end > len(whole):
        raise RefusedError(
            f"Inference-Header-Content-Length is {end}, and the body has {len(whole)} bytes"
        )
    text = whole[:end]
    document = _read_typed(text, limits) or _read_untyped(text, limits)
    given, wanted = document.inputs or (), document.outputs or ()
    for name, entries in (("inputs", given), ("outputs", wanted)):
        if len(entries) > limits.tensor_count:
            text_of_count = f"{len(entries)} items; at most {limits.tensor_count} are taken"
            raise RefusedError(text_of_count, field=name)
    tensors = _RawTensors(whole[end:])
    inputs: list[GivenTensor] = []
    shared: list[SharedInput] = []
    for index, item in enumerate(given):
        path = f"inputs[{index}]"
        fields = Fields(item.parameters, f"{path}.parameters") if item.parameters else None
        place = read_place(fields, regions) if fields else None
        size = _binary_size(fields) if fields else None
        if place is not None:
            shared.append(_shared_input(item, place, path, limits, size))
        else:
            read = _read_input(item, path, tensors, limits, size, keeps_bytes=keeps_bytes)
            inputs.append(read)
    tensors.refuse_rest()
    parameters = Fields(document.parameters or {}, "parameters")
    is_binary = parameters.flag("binary_data_output", default=False)
    return InferCall(
        inputs=inputs,
        outputs=[
            _read_output(item, f"outputs[{index}]", is_binary, regions)
            for index, item in enumerate(wanted)
        ],
        id=document.id or "",
        is_binary=is_binary,
        keeps_bytes=keeps_bytes,
        shared=shared,
        **read_request_parameters(parameters),
    )


@dataclass(slots=True)
class _Input:
    """An input as JSON has it."""

    name: str
    datatype: str
    shape: list[int]
    data: Any = None
    parameters: dict[str, Any] | None = None


@dataclass(slots=True)
class _Output:
    name: str
    parameters: dict[str, Any] | None = None


@dataclass(slots=True)
class _Document:
    """The JSON of a request."""

    inputs: list[_Input] | None = None
    outputs: list[_Output] | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


_read_typed = typed_reader(_Document)


def _read_untyped(text: memoryview, limits: Limits) -> _Document:
    """Read what is of another form, and say what is wrong with it. Raises RefusedError."""
    fields = Fields(read_json(text, limits))
    inputs = []
    for index, item in enumerate(fields.items("inputs", limits.tensor_count)):
        each = Fields(item, f"inputs[{index}]")
        name, datatype = each.text("name"), each.text("datatype")
        shape = each.shape("shape", limits.rank)
        parameters = each.inner("parameters").values
        inputs.append(_Input(name, datatype, list(shape), each.any("data"), parameters))
    outputs = []
    for index, item in enumerate(fields.items("outputs", limits.tensor_count)):
        each = Fields(item, f"outputs[{index}]")
        outputs.append(_Output(each.text("name"), each.inner("parameters").values))
    parameters = fields.inner("parameters").values
    return _Document(inputs, outputs, fields.text("id", ""), parameters)


class _RawTensors:
    """What follows the JSON, cut into tensors in order."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._place = data, 0

    def take(self, size: int, field: str) -> memoryview:
        end = self._place + size
        if end > len(self._data):
            raise RefusedError(
                f"{size} bytes, and {len(self._data) - self._place} are left in the body",
                field=field,
            )
        taken, self._place = self._data[self._place : end], end
        return taken

    def refuse_rest(self) -> None:
        if rest := len(self._data) - self._place:
            raise RefusedError(f"{rest} bytes of the body belong to no input")


def _read_input(
    entry: _Input,
    path: str,
    tensors: _RawTensors,
    limits: Limits,
    size: int | None,
    *,
    keeps_bytes: bool,
) -> GivenTensor:
    """Read an input from the JSON, or of as many raw bytes as ``size`` from what follows it."""
    datatype, shape = entry.datatype, entry.shape
    count = _element_count(entry, path, limits)
    if size is not None:
        if entry.data is not None:
            raise RefusedError(
                "is there beside binary_data_size; one is wanted", field=f"{path}.data"
            )
        field = f"{path}.parameters.binary_data_size"
        data = tensors.take(size, field)
        array = read_raw(data, datatype, shape, field, keeps_bytes=keeps_bytes)
    else:
        array = _read_numbers(entry.data, f"{path}.data", datatype, shape, count)
        if keeps_bytes and datatype == "BYTES":
            for index, text in enumerate(array.flat):
                array.flat[index] = text.encode()
    return GivenTensor(entry.name, datatype, array, path)


def _element_count(entry: _Input, path: str, limits: Limits) -> int:
    """Return how many elements an input has, by its shape."""
    if entry.datatype not in DATATYPES:
        raise RefusedError(
            f"{entry.datatype!r} is none of {', '.join(DATATYPES)}", field=f"{path}.datatype"
        )
    refuse_wrong_lengths(entry.shape, f"{path}.shape", limits.rank)
    return refuse_too_big(entry.datatype, entry.shape, path, limits)


def _shared_input(
    entry: _Input, place: Place, path: str, limits: Limits, size: int | None
) -> SharedInput:
    _element_count(entry, path, limits)
    if entry.data is not None or size is not None:
        text = "is there beside data or binary_data_size; one is wanted"
        raise RefusedError(text, field=f"{path}.parameters.shared_memory_region")
    return SharedInput(entry.name, entry.datatype, entry.shape, place, path)


def _binary_size(parameters: Fields) -> int | None:
    """Return how many raw bytes an input has; None if it has none."""
    name = "binary_data_size"
    return parameters.count(name) if parameters.has(name) else None


def _read_numbers(
    data: object, field: str, datatype: str, shape: Sequence[int], count: int
) -> Array:
    """Read the flat or nested list of a tensor's elements."""
    if not isinstance(data, list):
        raise RefusedError("a list is wanted, or parameters.binary_data_size", field=field)
    if datatype in _RAW_ONLY:
        raise RefusedError(f"{datatype} is taken as binary data only", field=field)
    flat = _flat(data, shape, field) if data and isinstance(data[0], list) else data
    if len(flat) != count:
        raise RefusedError(f"{len(flat)} elements; shape {list(shape)} has {count}", field=field)
    return read_elements(flat, datatype, shape, field)


def read_elements(flat: list[object], datatype: str, shape: Sequence[int], field: str) -> Array:
    """Read the elements of a tensor, as many as its shape has. Raises RefusedError."""
    if datatype == "BYTES":
        return _read_strings(flat, field).reshape(shape)
    dtype = DATATYPES[datatype].numpy
    if not flat:
        return np.zeros(shape, dtype)
    natural = _natural(flat, datatype, field)
    if datatype[0] in "UI":
        return _whole_numbers(flat, natural, datatype, field).reshape(shape)
    if natural.dtype.kind == "O":  # whole numbers beyond 64 bits
        try:
            natural = np.array(flat, np.float64)
        except OverflowError:
            text = f"an element is out of the range of {datatype}"
            raise RefusedError(text, field=field) from None
    with np.errstate(over="ignore"):  # to infinity, as others round
        return natural.astype(dtype).reshape(shape)


def _whole_numbers(flat: list[object], natural: Array, datatype: str, field: str) -> Array:
    dtype = DATATYPES[datatype].numpy
    bounds = np.iinfo(dtype)
    if natural.dtype.kind in "iu":
        if natural.min() < bounds.min or natural.max() > bounds.max:
            raise RefusedError(f"an element is out of the range of {datatype}", field=field)
        return natural.astype(dtype)
    # What numpy has no one type for, as a number of 64 bits beside a small one.
    if any(type(item) is not int for item in flat):
        raise RefusedError(f"an element is not of {datatype}", field=field)
    try:
        return np.array(flat, dtype)
    except OverflowError:
        raise RefusedError(f"an element is out of the range of {datatype}", field=field) from None


def _natural(flat: list[object], datatype: str, field: str) -> Array:
    """Return the numbers in the type that numpy finds for them.

    A text among them is refused before: each element would take the room of the longest.
    """
    kinds = set(map(type, flat))
    if list in kinds:
        raise RefusedError("elements and lists are mixed", field=field)
    if not kinds <= (_FLAGS if datatype == "BOOL" else _NUMBERS):
        raise RefusedError(f"an element is not of {datatype}", field=field)
    return np.asarray(flat)


def _read_strings(flat: list[object], field: str) -> Array:
    texts = np.empty(len(flat), object)
    for index, item in enumerate(flat):
        if not isinstance(item, str):
            raise RefusedError("a string is wanted", field=f"{field}[{index}]")
        if not item.isascii():
            refuse_surrogates(item, f"{field}[{index}]")
        texts[index] = item
    return texts


def _flat(data: list[object], shape: Sequence[int], field: str) -> list[object]:
    """Join nested lists, one level after the other; they must nest as the shape says."""
    nested = [len(data)]
    while data and isinstance(data[0], list):
        length = len(data[0])
        joined: list[object] = []
        for item in data:
            if not isinstance(item, list):
                raise RefusedError("elements and lists are mixed", field=field)
            if len(item) != length:
                raise RefusedError("lists beside each other differ in length", field=field)
            joined += item
        nested.append(length)
        data = joined
    is_deep_enough = len(nested) == len(shape) or not data  # lists of no lists end there
    if nested != list(shape[: len(nested)]) or not is_deep_enough:
        raise RefusedError(f"nests as {nested}, and its shape is {list(shape)}", field=field)
    return data


def _read_output(entry: _Output, path: str, is_binary: bool, regions: Regions | None) -> Requested:
    parameters = Fields(entry.parameters or {}, f"{path}.parameters")
    return Requested(
        name=entry.name,
        is_binary=parameters.flag("binary_data", default=is_binary),
        class_count=parameters.count("classification"),
        field=path,
        place=read_place(parameters, regions),
    )
