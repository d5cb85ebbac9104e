"""Reductions and norms that onnx.reference gets wrong for some numbers or types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..lists import numbers_of
from ..plain_operators import Array
from .own_operators import own

__all__ = [
    "hardmax",
    "lp_normalization",
    "mean_variance_normalization",
    "reduce_log_sum",
    "reduce_log_sum_exp",
]


# onnx.reference subtracts -inf from -inf, and axes of a vector are an attribute to it.
@own("ReduceLogSumExp", since=18)
def reduce_log_sum_exp(
    x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Array:
    """Compute log(sum(exp(x))) without overflow; -inf for nothing, and for -inf alone."""
    chosen = tuple(numbers_of(axes, may_be_one=True)) if axes is not None and axes.size else None
    if chosen is None and noop_with_empty_axes:
        return x
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        greatest = np.max(wide, axis=chosen, keepdims=True, initial=-np.inf)
        shift = np.where(np.isinf(greatest), 0.0, greatest)
        total = np.sum(np.exp(wide - shift), axis=chosen, keepdims=True)
        made = np.log(total) + shift
    if not keepdims:
        made = np.squeeze(made, axis=chosen if chosen is not None else tuple(range(x.ndim)))
    return np.asarray(made).astype(x.dtype)


# onnx.reference has no logarithm of integers.
@own("ReduceLogSum", since=18)
def reduce_log_sum(
    x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Array:
    """Compute log(sum(x)), in double precision; -inf for nothing."""
    chosen = tuple(numbers_of(axes, may_be_one=True)) if axes is not None and axes.size else None
    if chosen is None and noop_with_empty_axes:
        chosen = ()
    with np.errstate(all="ignore"):
        made = np.log(np.sum(x, axis=chosen, keepdims=keepdims != 0, dtype=np.float64))
        return np.asarray(made).astype(x.dtype)


# onnx.reference adds up what is below zero as it is, and roots that are not whole give NaN.
@own("LpNormalization", since=1)
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divide by the sum of absolute values, or the root of squares, along an axis; 0 stays 0."""
    size = np.abs(x) if p == 1 else np.square(x)
    norm = np.sum(size, axis=axis, keepdims=True)
    norm = norm if p == 1 else np.sqrt(norm)
    with np.errstate(all="ignore"):
        return np.where(norm == 0, 0, x / norm).astype(x.dtype)


# onnx.reference takes NaN for the greatest number, and counts from the end of rows of integers.
@own("Hardmax", since=13)
def hardmax(x: Array, *, axis: int = -1) -> Array:
    """Put 1 at the first of the greatest numbers along an axis, and 0 at the others.

    NaN is no number: where there are no others, all are 0. In onnxruntime it is none, either, but
    there the lanes of a vector decide which numbers beside it count.
    """
    made = np.zeros_like(x)
    if not x.size:
        return made
    is_number = ~np.isnan(x)
    lowest = np.where(is_number, x, x.dtype.type(-np.inf))
    is_greatest = is_number & (lowest == lowest.max(axis=axis, keepdims=True))
    places = np.expand_dims(np.argmax(is_greatest, axis=axis), axis)
    np.put_along_axis(made, places, np.take_along_axis(is_greatest, places, axis), axis)
    return made


# onnx.reference computes the variance as a difference of squares, and warns of what is empty.
@own("MeanVarianceNormalization", since=9)
def mean_variance_normalization(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """Subtract the mean over axes and divide by the standard deviation, plus 1e-9."""
    chosen, wide = tuple(axes), x.astype(np.float64)
    if not x.size:
        return x
    centred = wide - wide.mean(axis=chosen, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=chosen, keepdims=True))
    return np.asarray((centred / (deviation + 1e-9)).astype(x.dtype))
