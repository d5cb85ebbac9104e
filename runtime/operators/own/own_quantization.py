"""Quantisation to small integers: rounded to even, and saturated, whatever the number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import DType, Node, TensorType
from ..plain_operators import Array, plain
from .own_operators import own

__all__ = [
    "dequantize_linear",
    "dynamic_quantize_linear",
    "matmul_integer",
    "qlinear_matmul",
    "quantize_linear",
]

_BYTES = (DType.INT8, DType.UINT8)
_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)


def _makes_small_integers(node: Node) -> bool:
    made = node.outputs[0].type
    return isinstance(made, TensorType) and made.dtype in _INTEGERS


def _reads_integers(node: Node) -> bool:
    given = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(given, TensorType) and given.dtype in (*_INTEGERS, DType.INT32)


# onnx.reference casts to 32 bits before it saturates, so that 3e9 becomes the lowest number.
@plain(
    "QuantizeLinear",
    since=10,
    later={"axis": 13, "saturate": 19, "block_size": 21, "output_dtype": 21},
    accepts=_makes_small_integers,
)
def quantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Array:
    """Divide by a scale, one or one for each place or block of an axis, round, and saturate."""
    dtype = DType(output_dtype).numpy if output_dtype else np.dtype(np.uint8)
    if zero_point is not None:
        dtype = zero_point.dtype
    shift: Any = 0
    if zero_point is not None:
        shift = _along(zero_point, x, axis, block_size).astype(np.float32)
    wide = np.promote_types(scale.dtype, np.float32)
    with np.errstate(all="ignore"):
        quotient = x.astype(wide) / _along(scale, x, axis, block_size).astype(wide)
    return _saturated(np.rint(quotient), shift, dtype)


@plain(
    "DequantizeLinear",
    since=10,
    later={"axis": 13, "block_size": 21, "output_dtype": 23},
    accepts=_reads_integers,
)
def dequantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Take the zero point away and multiply by the scale, one or one for each place or block."""
    whole = x.astype(np.float32)
    if zero_point is not None:
        whole = whole - _along(zero_point, x, axis, block_size)
    made = whole * _along(scale, x, axis, block_size)
    return made.astype(DType(output_dtype).numpy if output_dtype else scale.dtype, copy=False)


def _along(parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    """View a number for each place of an axis, or repeat one a block, so that it broadcasts.

    Raises ValueError for what is no row, and for blocks that are not those of x.
    """
    if block_size:
        axis %= x.ndim
        wanted = tuple(
            -(-length // block_size) if at == axis else length for at, length in enumerate(x.shape)
        )
        if block_size < 0 or parameter.shape != wanted:
            raise ValueError(
                f"numbers of shape {parameter.shape} are given for {x.shape}, of which {wanted} "
                f"are in blocks of {block_size}"
            )
        lengths = (slice(None),) * axis + (slice(x.shape[axis]),)
        return np.asarray(np.repeat(parameter, block_size, axis)[lengths])
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim != 1:
        raise ValueError(f"numbers of shape {parameter.shape} are no row along axis {axis}")
    return parameter.reshape([-1 if at == axis % x.ndim else 1 for at in range(x.ndim)])


def _saturated(whole: Array, shift: Any, dtype: np.dtype[Any]) -> Array:
    """Add a zero point to whole numbers, and keep what is beyond a type at its end."""
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    shifted = np.where(np.isnan(whole), lowest, whole + shift)
    return np.asarray(np.clip(shifted, lowest, highest)).astype(dtype)


# onnx.reference gives 1/255 as the scale of zeros, and fails for no elements.
@own("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """Quantise to uint8 from the least to the greatest element, and 0; of zeros the scale is 1."""
    highest = np.float32(np.max(x, initial=0))
    lowest = np.float32(np.min(x, initial=0))
    with np.errstate(all="ignore"):
        scale = (highest - lowest) / np.float32(255) if highest != lowest else np.float32(1)
        zero_point = _saturated(np.rint(-lowest / scale), 0, np.dtype(np.uint8))
        quantized = _saturated(np.rint(x / scale), np.float32(zero_point), np.dtype(np.uint8))
    return quantized, np.asarray(scale, np.float32), zero_point


def _has_small_operands(node: Node) -> bool:
    if len(node.inputs) != 8:
        return False
    types = [value and value.type for value in (node.inputs[0], node.inputs[3], node.inputs[7])]
    return all(isinstance(item, TensorType) and item.dtype in _BYTES for item in types)


# onnx.reference wraps around instead of saturating, as do four cases of onnx 1.21's backend suite
# (test_qlinearmatmul_*_int8_*; later ones saturate), and rounds with the zero point added.
@plain("QLinearMatMul", since=10, accepts=_has_small_operands)
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Multiply quantised matrices; scales are one, or one for each row of a and column of b."""
    # Sums of 8-bit products are exact in float64, whose products run in BLAS; integers' do not.
    left = a.astype(np.float64) - _rows(a_zero_point, a)
    right = b.astype(np.float64) - b_zero_point
    factor = _rows(a_scale, a).astype(np.float32) * b_scale.astype(np.float32)
    product = np.matmul(left, right)
    scaled = product.astype(np.float32) * (factor / _rows(y_scale, a).astype(np.float32))
    shift = _rows(y_zero_point, a).astype(np.float32)
    return _saturated(np.rint(scaled), shift, y_zero_point.dtype)


@plain("MatMulInteger", since=10)
def matmul_integer(
    a: Array,
    b: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
) -> Array:
    """Multiply 8-bit integers exactly; gives int32. Zero points are of a row, or of a column."""
    # Sums of 8-bit products are exact in float64, whose products run in BLAS; integers' do not.
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    if a_zero_point is not None:
        wide_a -= a_zero_point[:, None] if a_zero_point.ndim == 1 and a.ndim > 1 else a_zero_point
    if b_zero_point is not None:
        wide_b -= b_zero_point
    return np.asarray(np.matmul(wide_a, wide_b)).astype(np.int64).astype(np.int32)


def _rows(parameter: Array, matrix: Array) -> Array:
    """View a number for each row so that it broadcasts over the columns."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, 1) if parameter.ndim == 1 and matrix.ndim > 1 else parameter
