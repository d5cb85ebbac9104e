"""How arrays of each element type travel to onnxruntime and back. Pure; numpy only.

onnxruntime takes and gives numpy arrays of numpy's own types without a copy. What numpy lacks goes
in as raw memory with an element type beside it. onnxruntime does not give it back to numpy, so it
comes out through a Cast, which the model ends with there, to a type of numpy that holds every value
of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.graph import DType, OptionalType, SequenceType, TensorType, ValueType

__all__ = [
    "find_unexchangeable",
    "is_numpy_type",
    "output_cast_of",
    "raw_memory_of",
    "text_array",
]

_PACKED_BITS = {
    DType.UINT4: 4,
    DType.INT4: 4,
    DType.FLOAT4E2M1: 4,
    DType.UINT2: 2,
    DType.INT2: 2,
}
_CASTS = {
    DType.BFLOAT16: DType.FLOAT32,
    DType.FLOAT8E4M3FN: DType.FLOAT32,
    DType.FLOAT8E4M3FNUZ: DType.FLOAT32,
    DType.FLOAT8E5M2: DType.FLOAT32,
    DType.FLOAT8E5M2FNUZ: DType.FLOAT32,
    DType.FLOAT8E8M0: DType.FLOAT32,
    DType.FLOAT4E2M1: DType.FLOAT32,
    DType.UINT4: DType.UINT8,
    DType.INT4: DType.INT8,
    DType.UINT2: DType.UINT8,
    DType.INT2: DType.INT8,
}


def is_numpy_type(dtype: DType) -> bool:
    """True for the element types that numpy has itself, and strings."""
    return dtype.value < DType.BFLOAT16.value


def output_cast_of(value_type: ValueType | None) -> DType | None:
    """Return the type that an output leaves onnxruntime in, if that is not its own."""
    return _CASTS.get(value_type.dtype) if isinstance(value_type, TensorType) else None


def find_unexchangeable(value_type: ValueType | None) -> str | None:
    """Return why a value can be no input or output of a session; None if it can."""
    if value_type is None or isinstance(value_type, TensorType):
        return None
    inner = value_type.element
    while isinstance(inner, SequenceType | OptionalType):
        inner = inner.element
    if isinstance(inner, TensorType) and not is_numpy_type(inner.dtype):
        return f"onnxruntime exchanges no {value_type} with Python"
    return None


def raw_memory_of(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Lay an array out as onnxruntime has it in memory: C order, small types several to a byte.

    The shape stays what it was: of a packed array only the first bytes are used.
    """
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    bits = _PACKED_BITS.get(dtype)
    if bits is None:
        return contiguous
    codes = contiguous.view(np.uint8).reshape(-1) & np.uint8((1 << bits) - 1)
    per_byte = 8 // bits
    padded = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    padded[: codes.size] = codes
    packed = np.zeros(max(codes.size, 1), np.uint8)
    for place in range(per_byte):
        packed[: padded.size // per_byte] |= padded[place::per_byte] << np.uint8(place * bits)
    return packed[: codes.size].reshape(array.shape)


def text_array(value: Any) -> Any:
    """Make strings of any array, list or tuple of them what onnxruntime takes: objects of str."""
    if value is None or isinstance(value, list):
        return value if value is None else [text_array(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return value.astype(object)
    array = np.asarray(value, object)
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.reshape(-1)]
    made = np.empty(array.size, object)
    made[:] = texts
    return made.reshape(array.shape)
