"""TensorProtos as arrays, with every size checked before it is believed."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ....errors import ModelError
from ...graph import DType, shape_text
from ...onnx_writer.types import dtype_of

__all__ = ["dense_array", "packed_bytes", "stored_array", "tensor_array", "tensor_shape"]

DENSE_LIMIT_BYTES = 1 << 31  # the largest tensor that could have been stored densely in the file

_BITS = {DType.UINT4: 4, DType.INT4: 4, DType.FLOAT4E2M1: 4, DType.UINT2: 2, DType.INT2: 2}


def tensor_shape(tensor: onnx.TensorProto) -> tuple[int, ...]:
    """Read the lengths; raises ModelError for a negative one."""
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ModelError(f"tensor {tensor.name!r} has a negative length: {shape_text(shape)}")
    return shape


def packed_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor as files store it: 4-bit and 2-bit elements share bytes."""
    bits = _BITS.get(dtype, dtype.item_bytes * 8)
    return (math.prod(shape) * bits + 7) // 8


def tensor_array(tensor: onnx.TensorProto) -> np.ndarray:
    """Decode a tensor whose data is in the proto; read-only.

    Raises ModelError if the data is not as long as dtype and shape say. Strings become an object
    array of str.
    """
    place = f"tensor {tensor.name!r}"
    dtype = dtype_of(tensor.data_type, place)
    shape = tensor_shape(tensor)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("segment"):
        raise ModelError(f"{place} stands where its data cannot lie outside of the model")
    if dtype is DType.STRING:
        return _strings(tensor, shape)
    if tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, dtype=np.uint8)
        return stored_array(raw, dtype, shape, place)
    field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    expected = math.prod(shape)
    if dtype in _BITS:
        expected = packed_bytes(dtype, shape)
    elif dtype in (DType.COMPLEX64, DType.COMPLEX128):
        expected *= 2
    found = len(getattr(tensor, field))
    if found != expected:
        raise ModelError(
            f"{place} is {dtype.label}{shape_text(shape)} and needs {expected} items in {field}, "
            f"but has {found}"
        )
    array = onnx.numpy_helper.to_array(tensor)
    array.flags.writeable = False
    return array


def _strings(tensor: onnx.TensorProto, shape: tuple[int, ...]) -> np.ndarray:
    items = [item.decode("utf-8") for item in tensor.string_data]
    if len(items) != math.prod(shape):
        raise ModelError(
            f"tensor {tensor.name!r} is string{shape_text(shape)}, but has {len(items)} items"
        )
    array = np.fromiter(items, dtype=object, count=len(items)).reshape(shape)
    array.flags.writeable = False
    return array


def stored_array(raw: np.ndarray, dtype: DType, shape: tuple[int, ...], place: str) -> np.ndarray:
    """See stored bytes (a uint8 vector, kept) as a tensor, without a copy where possible.

    Raises ModelError, naming the place, if there are not exactly as many bytes as needed.
    """
    expected = packed_bytes(dtype, shape)
    if raw.size != expected:
        raise ModelError(
            f"{place} is {dtype.label}{shape_text(shape)} and needs {expected} bytes, but has "
            f"{raw.size}"
        )
    if dtype in _BITS:
        packed = onnx.TensorProto(data_type=dtype.value, dims=shape, raw_data=raw.tobytes())
        array = onnx.numpy_helper.to_array(packed)
    elif dtype is DType.BOOL:
        array = (raw != 0).reshape(shape)  # a byte other than 0 and 1 is no numpy bool
    else:
        array = raw.view(dtype.numpy).reshape(shape)
    array.flags.writeable = False
    return array


def dense_array(
    values: np.ndarray, indices: np.ndarray, shape: tuple[int, ...], place: str
) -> np.ndarray:
    """Make the dense form of a sparse tensor in COO form; read-only.

    indices: (count,) linear or (count, rank). Raises ModelError, naming the place, if they do not
    fit, or if the dense form would be over 2 GiB.
    """
    if any(dim < 0 for dim in shape):
        raise ModelError(f"{place} has a negative length: {shape_text(shape)}")
    size = math.prod(shape)
    if size * values.dtype.itemsize > DENSE_LIMIT_BYTES:
        raise ModelError(f"{place} is sparse and over {DENSE_LIMIT_BYTES} bytes when dense")
    if values.ndim != 1 or indices.dtype != np.int64:
        raise ModelError(f"{place} is sparse, but its values are not a vector with int64 indices")
    linear = indices
    if indices.ndim == 2 and indices.shape == (values.size, len(shape)):
        in_range = (indices >= 0).all() and (indices < np.array(shape, np.int64)).all()
        if not in_range:
            raise ModelError(f"{place} is sparse and has an index outside of {shape_text(shape)}")
        linear = np.zeros(values.size, np.int64)
        for axis, dim in enumerate(shape):
            linear = linear * dim + indices[:, axis]
    if linear.shape != values.shape:
        raise ModelError(f"{place} is sparse, and its indices do not fit its values")
    if linear.size and (linear.min() < 0 or linear.max() >= size):
        raise ModelError(f"{place} is sparse and has an index outside of {shape_text(shape)}")
    array = np.zeros(size, values.dtype)
    array[linear] = values
    array = array.reshape(shape)
    array.flags.writeable = False
    return array
