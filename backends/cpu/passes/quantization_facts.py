"""What QuantizeLinear and DequantizeLinear say, where int8 kernels can take it. Pure."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....runtime.graph import DType, Node, Value
from ....runtime.lowering.window import window_of
from ....runtime.passes.rewriting.matching import dtype_of, made_by, rank_of, static_shape
from ..kernels.windows.phases import has_few_zeros
from ..native.int8_sizes import MOST_TAPS

__all__ = [
    "RANGES",
    "Quantization",
    "Weights",
    "dequantized",
    "dynamically_dequantized",
    "is_int8_weights",
    "is_stored_table",
    "quantization_of",
    "signed",
    "suits_int8",
    "suits_native_kernels",
    "weights_of",
]

Array = np.ndarray[Any, Any]

RANGES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255)}
_LEAST_COLUMNS = 8
"""Of a group of native_int8.c's convolutions that are not depthwise."""
_WINDOWS = ("Conv", "ConvTranspose")
_MATRICES = ("Gemm", "MatMul")


class Quantization(NamedTuple):
    """One scale and one zero point for a whole tensor: real = (stored - zero point) * scale."""

    scale: float
    zero_point: int
    dtype: DType


class Weights(NamedTuple):
    """Constant weights in int8, symmetric, and their scales: one, or one for each column."""

    array: Array
    scales: Array


def quantization_of(node: Node | None) -> Quantization | None:
    """Read a node of either operator; None if its numbers are not known, or not one, or not 8 bits.

    Scales are finite and above 0.
    """
    if node is None or node.domain or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    real = node.inputs[0] if node.op_type == "QuantizeLinear" else node.outputs[0]
    dtype = dtype_of(stored)
    if dtype not in RANGES or dtype_of(real) is not DType.FLOAT32:
        return None
    scale, zero = node.inputs[1], node.input_at(2)
    scales = None if scale is None else scale.constant
    if scales is None or scales.size != 1 or scales.dtype != np.float32:
        return None
    if zero is not None and (zero.constant is None or zero.constant.size != 1):
        return None
    number = float(scales.reshape(-1)[0])
    if not math.isfinite(number) or number < np.finfo(np.float32).smallest_normal:
        return None
    point = 0 if zero is None or zero.constant is None else int(zero.constant.reshape(-1)[0])
    return Quantization(number, point, dtype)


def dequantized(value: Value | None) -> tuple[Value, Quantization] | None:
    """Return what a value was dequantised from; None for a constant, and for any other value."""
    node = made_by(value, "DequantizeLinear")
    found = quantization_of(node)
    if node is None or found is None:
        return None
    stored = node.inputs[0]
    return None if stored is None or stored.constant is not None else (stored, found)


def dynamically_dequantized(value: Value | None) -> Node | None:
    """Return the DequantizeLinear of a value in 8 bits, by one scale that the run finds."""
    node = made_by(value, "DequantizeLinear")
    if node is None or dtype_of(node.outputs[0]) is not DType.FLOAT32:
        return None
    stored, scale, zero = (node.input_at(index) for index in range(3))
    if stored is None or stored.constant is not None or dtype_of(stored) not in RANGES:
        return None
    if scale is None or scale.constant is not None or dtype_of(scale) is not DType.FLOAT32:
        return None
    are_one = all(static_shape(item) in ((), (1,)) for item in (scale, zero) if item is not None)
    return node if are_one else None


def weights_of(node: Node) -> Weights | None:
    """Return the weights of a Conv, ConvTranspose, Gemm or MatMul, if they are int8 around 0.

    uint8 around 128 is the same. Scales stand along the axis of the result's channels. A
    ConvTranspose has windows that are filled up with few zeros, and one scale for a column of all
    groups.
    """
    maker = made_by(node.input_at(1), "DequantizeLinear")
    if maker is None:
        return None
    stored, scale, zero = (maker.input_at(index) for index in range(3))
    if stored is None or stored.constant is None or scale is None or scale.constant is None:
        return None
    array, scales = stored.constant, scale.constant
    if array.dtype not in (np.int8, np.uint8) or scales.dtype != np.float32:
        return None
    if zero is not None and zero.constant is None:
        return None
    middle = 128 if array.dtype == np.uint8 else 0
    points = np.zeros(1, array.dtype) if zero is None or zero.constant is None else zero.constant
    if not (points == middle).all() or not _is_positive(scales):
        return None
    if array.ndim != (rank_of(node.inputs[0]) if node.op_type in _WINDOWS else 2):
        return None
    if node.op_type == "ConvTranspose" and not _has_phases(node, array):
        return None
    axis = _channel_axis(node)
    given = int(maker.attributes.get("axis", 1))
    if not -array.ndim <= given < array.ndim or maker.attributes.get("block_size", 0):
        return None
    is_along = scales.shape == (array.shape[axis],) and given % array.ndim == axis
    return Weights(array, scales) if scales.size == 1 or is_along else None


def signed(array: Array) -> Array:
    """Return weights as int8; uint8 ones are around 128."""
    if array.dtype == np.int8:
        return array
    return (array.astype(np.int16) - 128).astype(np.int8)


def is_int8_weights(node: Node) -> bool:
    """True for a DequantizeLinear whose constant int8 kernels, or Gathers, may read as it is."""
    if node.domain or node.op_type != "DequantizeLinear":
        return False
    uses = node.outputs[0].uses
    return bool(uses) and all(
        _takes_weights(user, index) or (_takes_rows(user, index) and is_stored_table(node))
        for user, index in uses
    )


def is_stored_table(node: Node) -> bool:
    """True for a DequantizeLinear of a constant in 8 bits, with one scale for all of it."""
    if node.op != "DequantizeLinear" or quantization_of(node) is None:
        return False
    return node.inputs[0] is not None and node.inputs[0].constant is not None


def suits_int8(_node: Node) -> bool:
    """True: where the processor multiplies stored numbers, that is faster for every node."""
    return True


def suits_native_kernels(node: Node) -> bool:
    """True if CPU's native kernels compute a node in int8 faster than it is in float32.

    They have two axes, and panels of columns, which small groups do not fill. In float32 a
    ConvTranspose of groups is slower still, where it has strides.
    """
    weights = static_shape(node.inputs[1])
    if node.op_type not in _WINDOWS or weights is None:
        return True
    groups = int(node.attributes.get("group", 1))
    if not 3 <= len(weights) <= 4 or groups < 1:
        return False
    if groups == 1:
        return True
    columns, channels = weights[0] // groups, weights[1]
    if node.op_type == "ConvTranspose":
        if math.prod(node.attributes.get("strides", ())) > 1:
            return True
        columns, channels = channels, columns
    if columns == channels == 1:
        return math.prod(weights[2:]) <= MOST_TAPS
    return columns >= _LEAST_COLUMNS


def _has_phases(node: Node, array: Array) -> bool:
    """True for a ConvTranspose whose phases are worth a convolution (see phases.py)."""
    groups = int(node.attributes.get("group", 1))
    if array.ndim < 3 or groups < 1 or array.shape[0] % groups:
        return False
    return has_few_zeros(window_of(node, array.shape[2:], array.shape[2:]))


def _takes_rows(user: Node, index: int) -> bool:
    return user.op == "Gather" and index == 0


def _takes_weights(user: Node, index: int) -> bool:
    if index != 1 or user.domain or user.op_type not in (*_WINDOWS, *_MATRICES):
        return False
    if dequantized(user.inputs[0]) is None:
        is_dynamic = dynamically_dequantized(user.inputs[0]) is not None
        if user.op_type in _WINDOWS or not is_dynamic:
            return False
    return weights_of(user) is not None


def _is_positive(scales: Array) -> bool:
    smallest = np.finfo(np.float32).smallest_normal
    return bool(scales.size and np.isfinite(scales).all() and (scales >= smallest).all())


def _channel_axis(node: Node) -> int:
    if node.op_type == "Conv" or node.attributes.get("transB", 0):
        return 0
    return 1
