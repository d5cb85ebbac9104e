"""What native_rows.c does, with numpy: the same operands and parameters."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.graph import DType
from .native import view_at

__all__ = ["ROW_KERNELS"]

Array = np.ndarray[Any, Any]

_ELEMENTS = (DType.FLOAT32, DType.BFLOAT16)


def _array(address: int, element: int, shape: Sequence[int]) -> Array:
    dtype = _ELEMENTS[element]
    return view_at(address, math.prod(shape) * dtype.item_bytes).view(dtype.numpy).reshape(shape)


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def softmax(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Softmax along the middle of three axes, or its logarithm."""
    element, *shape, is_log = parameters
    values = _array(data[0], element, shape).astype(np.float32)
    with np.errstate(all="ignore"):
        values -= values.max(axis=1, keepdims=True)
        powers = np.exp(values)
        sums = powers.sum(axis=1, keepdims=True)
        _array(data[1], element, shape)[...] = values - np.log(sums) if is_log else powers / sums


def attention_probabilities(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Softmax of scores * scale + mask along the last of four axes; zeros for NaN if asked for."""
    element, *shape, bits, has_mask, batch, heads, rows, zero_empty_rows = parameters
    scores = _array(data[0], 0, shape)
    scores *= np.float32(_double(bits))
    if has_mask:
        strides = (batch, heads, rows, 1)
        reach = 1 + sum((dim - 1) * step for dim, step in zip(shape, strides, strict=True))
        taken = [4 * step for step in strides]
        scores += np.ndarray(shape, np.float32, view_at(data[2], 4 * reach), 0, taken)
    with np.errstate(all="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        sums = powers.sum(axis=-1, keepdims=True)
        made = powers / sums
        if zero_empty_rows:
            made = np.where(np.isnan(sums), 0, made)
        _array(data[1], element, shape)[...] = made


def rms_norm(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Divide rows by the root of their mean square, and multiply by factors."""
    element, rows, length, bits = parameters
    values = _array(data[0], element, (rows, length)).astype(np.float32)
    factors = _array(data[1], 0, (length,))
    mean = np.mean(values * values, axis=1, keepdims=True) + np.float32(_double(bits))
    _array(data[2], element, (rows, length))[...] = values / np.sqrt(mean) * factors


ROW_KERNELS: dict[str, Callable[[Sequence[int], Sequence[int]], None]] = {
    "attention_probabilities": attention_probabilities,
    "rms_norm": rms_norm,
    "softmax": softmax,
}
