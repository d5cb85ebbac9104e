"""The protocol's datatypes, and tensors as their raw bytes. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...runtime.graph import DType
from .limits import Limits
from .refusal import RefusedError

__all__ = [
    "DATATYPES",
    "datatype_of",
    "json_elements",
    "raw_bytes",
    "read_raw",
    "refuse_surrogates",
    "refuse_too_big",
    "text_of",
]

Array = np.ndarray[Any, np.dtype[Any]]

DATATYPES: Mapping[str, DType] = {
    "BOOL": DType.BOOL,
    "UINT8": DType.UINT8,
    "UINT16": DType.UINT16,
    "UINT32": DType.UINT32,
    "UINT64": DType.UINT64,
    "INT8": DType.INT8,
    "INT16": DType.INT16,
    "INT32": DType.INT32,
    "INT64": DType.INT64,
    "FP16": DType.FLOAT16,
    "FP32": DType.FLOAT32,
    "FP64": DType.FLOAT64,
    "BF16": DType.BFLOAT16,
    "BYTES": DType.STRING,
}
"""By the protocol's name, which element type it is."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_LENGTH = struct.Struct("<I")
_ITEM_BYTES = {
    name: _LENGTH.size if name == "BYTES" else dtype.item_bytes for name, dtype in DATATYPES.items()
}


def datatype_of(dtype: DType) -> str | None:
    """Return the protocol's name of an element type; None if it has none."""
    return _NAMES.get(dtype)


def refuse_too_big(datatype: str, shape: Sequence[int], field: str, limits: Limits) -> int:
    """Return how many elements a tensor has; raises RefusedError for one above ``tensor_bytes``.

    Nothing is allocated: the answer is that of the declared shape. BYTES count 4 an element. What
    has no elements is bounded by its other lengths, whose product numpy must be able to hold.
    """
    count = prod(shape)
    size = count * _ITEM_BYTES[datatype]
    if size > limits.tensor_bytes:
        raise RefusedError(
            f"a tensor of {size} bytes; at most {limits.tensor_bytes} are taken",
            status=413,
            field=f"{field}.shape",
        )
    if not size and prod(length for length in shape if length) > limits.tensor_bytes:
        raise RefusedError("lengths are too great beside one of 0", field=f"{field}.shape")
    return count


def read_raw(
    data: memoryview,
    datatype: str,
    shape: Sequence[int],
    field: str,
    *,
    keeps_bytes: bool = False,
) -> Array:
    """Read a tensor of little-endian raw bytes.

    data: exactly its bytes. The array is a read-only view of them where they are aligned for the
    type, else a copy; BYTES become an object array of str, or of bytes if it ``keeps_bytes``.
    Raises RefusedError.
    """
    count = prod(shape)
    if datatype == "BYTES":
        return read_texts(data, count, field, keeps_bytes=keeps_bytes).reshape(shape)
    dtype = DATATYPES[datatype].numpy
    if data.nbytes != count * dtype.itemsize:
        raise RefusedError(
            f"{data.nbytes} bytes; {datatype} of shape {list(shape)} has {count * dtype.itemsize}",
            field=field,
        )
    if datatype == "BOOL":
        flags: Array = np.frombuffer(data, np.uint8) != 0
        return flags.reshape(shape)
    flat = np.frombuffer(data, dtype)
    return (flat if flat.flags.aligned else flat.copy()).reshape(shape)


def read_texts(data: memoryview, count: int, field: str, *, keeps_bytes: bool = False) -> Array:
    """Read elements that have their length in front of them, four bytes, little-endian."""
    if count * _LENGTH.size > data.nbytes:
        raise RefusedError(f"{data.nbytes} bytes are too few for {count} elements", field=field)
    texts = np.empty(count, object)
    place = 0
    for index in range(count):
        start = place + _LENGTH.size
        if start > data.nbytes:
            raise RefusedError(f"ends before element {index}", field=field)
        place = start + _LENGTH.unpack_from(data, place)[0]
        if place > data.nbytes:
            raise RefusedError(f"ends inside element {index}", field=field)
        piece = data[start:place]
        texts[index] = bytes(piece) if keeps_bytes else text_of(piece, f"{field}[{index}]")
    if place != data.nbytes:
        raise RefusedError(
            f"{data.nbytes - place} bytes follow the last of {count} elements", field=field
        )
    return texts


def text_of(data: bytes | memoryview, field: str) -> str:
    """Decode an element of BYTES, which ONNX wants to be UTF-8."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise RefusedError("is not UTF-8, which ONNX's strings are", field=field) from None


def refuse_surrogates(text: str, field: str) -> None:
    """Refuse a text of JSON that has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError("is not UTF-8, which ONNX's strings are", field=field) from None


def raw_bytes(array: Array) -> memoryview:
    """Return a tensor's raw bytes: of a contiguous one where they lie, else of a copy."""
    if array.dtype == object:
        parts = [_encoded(item) for item in array.ravel().tolist()]
        return memoryview(b"".join(_LENGTH.pack(len(part)) + part for part in parts))
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data


def json_elements(array: Array, field: str) -> list[Any]:
    """Return the elements as JSON has them. Raises RefusedError for bytes that are no text."""
    flat: list[Any] = array.ravel().tolist()
    if array.dtype == object and any(isinstance(item, bytes) for item in flat):
        try:
            return [str(item, "utf-8") if isinstance(item, bytes) else item for item in flat]
        except UnicodeDecodeError:
            text = "has bytes that are no text, for which JSON has no form; ask for it with "
            raise RefusedError(f"{text}parameters.binary_data", field=field) from None
    return flat


def _encoded(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
