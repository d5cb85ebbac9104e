"""Arrays as TensorProtos."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper

from ..graph import DType

__all__ = ["SMALL_TENSOR_BYTES", "fill_tensor"]

SMALL_TENSOR_BYTES = 1024
"""Larger tensors are never shapes, axes or scales, so nothing that looks at graphs needs them."""


def fill_tensor(
    proto: onnx.TensorProto, name: str, array: np.ndarray, is_inline: bool
) -> onnx.TensorProto:
    """Write an array into an empty TensorProto and return it.

    If it is not inline and over SMALL_TENSOR_BYTES, only dtype and shape are written, and the data
    is said to be external, in no file. Strings are always inline: no external file can hold them.
    """
    if is_inline or array.nbytes <= SMALL_TENSOR_BYTES or DType.of(array.dtype) is DType.STRING:
        proto.CopyFrom(onnx.numpy_helper.from_array(np.asarray(array), name))
        return proto
    proto.name, proto.data_type = name, DType.of(array.dtype).value
    proto.dims.extend(array.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    proto.external_data.add(key="location", value="omitted")
    return proto
