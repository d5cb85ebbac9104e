"""Tensors and types of values, decoded without onnx."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from ...graph import Dim, DType, TensorType
from ..wire.limits import check_type
from ..wire.wire_format import Field, fields
from .plain_fields import Data, NotPlainError, cut, integer, integers, message

__all__ = ["Array", "ReadRaw", "copier", "tensor", "value_info"]

Array = np.ndarray[Any, Any]
ReadRaw = Callable[[int, int], Array]
"""``read(start, end)`` gives the bytes of a file from start to end as a uint8 vector."""

_READABLE_TYPES = frozenset(DType) - {
    DType.STRING, DType.UINT4, DType.INT4, DType.FLOAT4E2M1, DType.UINT2, DType.INT2
}  # fmt: skip
_PLAIN_TYPES = {dtype.value: dtype for dtype in _READABLE_TYPES}
_SMALL_BYTES = 4096  # so much is copied, which is quicker to walk than a mapped file


def tensor(
    data: Data, place: Field, read_raw: ReadRaw, read: Container[str] | None = None
) -> tuple[str, Array | None]:
    """Return a tensor's name, and its content, or None if the name is not in ``read``."""
    shift = 0
    start, end = message(place).content, place.end
    if end - start < _SMALL_BYTES:
        data, shift = data[start:end], start
    name, number = "", 0
    dims: list[int] = []
    content: Field | None = None
    for item in fields(data, start - shift, end - shift):
        field_number = item.number
        if field_number == 1:
            dims += integers(data, item)
        elif field_number == 2:
            number = integer(item)
        elif field_number == 8:
            name = data[message(item).content : item.end].decode()
        elif field_number in (4, 5, 7, 9, 10) and content is None:
            content = message(item)
        elif field_number not in (12, 16) and not (field_number == 14 and not item.value):
            raise NotPlainError(f"tensor {name!r} has its data elsewhere, or in pieces")
    check_type(number, name)
    dtype = _PLAIN_TYPES.get(number)
    if dtype is None or (dims and min(dims) < 0):
        raise NotPlainError(f"tensor {name!r} is not of a plain type")
    is_read = read is None or name in read
    if content is None or content.number == 9:
        at = (0, 0) if content is None else (content.content + shift, content.end + shift)
        if at[1] - at[0] != math.prod(dims) * dtype.numpy.itemsize:
            raise NotPlainError(f"tensor {name!r} has more or less data than its shape")
        if not is_read:
            return name, None
        raw = read_raw(*at) if at[1] > at[0] else np.empty(0, np.uint8)
    else:
        raw = _typed(data, dtype, content)
    array = _array(dtype, dims, raw)
    return name, array if is_read else None


def copier(data: bytes) -> ReadRaw:
    """Return what reads parts of a message that is in memory."""
    return lambda start, end: np.frombuffer(data, np.uint8, end - start, start).copy()


def value_info(data: bytes) -> tuple[str, TensorType | None]:
    """Return a value's name and type; None for a type that holds nothing."""
    name, known = "", None
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            name = cut(data, item).decode()
        elif item.number == 2:
            known = _type(cut(data, item))
    return name, known


def _array(dtype: DType, dims: list[int], raw: Array) -> Array:
    array = (raw != 0) if dtype is DType.BOOL else raw.view(dtype.numpy)
    array = array.reshape(dims)
    array.flags.writeable = False
    return array


def _typed(data: Data, dtype: DType, content: Field) -> Array:
    """Return the elements, as bytes, of a tensor whose data is a list of numbers."""
    if (content.number, dtype) in ((4, DType.FLOAT32), (10, DType.FLOAT64)):
        return np.frombuffer(data[content.content : content.end], np.uint8).copy()
    is_int64 = content.number == 7 and dtype is DType.INT64
    is_int32 = content.number == 5 and dtype in (DType.INT32, DType.INT8, DType.UINT8, DType.BOOL)
    if not (is_int64 or is_int32):
        raise NotPlainError("a tensor holds its numbers in an unusual way")
    numbers = np.array(integers(data, content), np.int64)
    stored = np.dtype(np.uint8) if dtype is DType.BOOL else dtype.numpy
    elements = numbers.astype(stored)
    if not np.array_equal(elements, numbers):
        raise NotPlainError("a number does not fit its type")
    return elements.view(np.uint8)


def _type(data: bytes) -> TensorType | None:
    """Read a TypeProto that holds a tensor; None where it holds nothing."""
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            return _tensor_type(cut(data, item))
        if item.number != 6:
            raise NotPlainError("a value is no tensor")
    return None


def _tensor_type(data: bytes) -> TensorType | None:
    number, shape = 0, None
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            number = integer(item)
        elif item.number == 2:
            shape = _shape(cut(data, item))
    return TensorType(DType(number), shape) if number else None


def _shape(data: bytes) -> tuple[Dim, ...]:
    return tuple([_dim(cut(data, item)) for item in fields(data, 0, len(data)) if item.number == 1])


def _dim(data: bytes) -> Dim:
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            length = integer(item)
            return length if length >= 0 else None  # old exporters write -1 for an unknown one
        if item.number == 2:
            return cut(data, item).decode() or None
    return None
