"""Elementwise operators that onnx.reference gets wrong for some numbers, shapes or threads."""

from __future__ import annotations

import math

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["error_function", "log_softmax", "power", "prelu", "softplus", "softsign", "square_root"]


# onnx.reference silences these two with warnings.catch_warnings, which is the whole process's.
@own("Pow", since=7)
def power(base: Array, exponent: Array) -> Array:
    """Raise to a power, in numpy's common type, and give the type of the base.

    Of integers to negative integers the fraction is cut off, and nothing is left of 0.
    """
    if base.dtype.kind in "iu" and exponent.dtype.kind == "i" and (exponent < 0).any():
        raised = np.power(base, np.maximum(exponent, 0))
        of_minus_one = np.where(exponent & 1, -1, 1)
        inverse = np.where(base == 1, 1, np.where(base == -1, of_minus_one, 0))
        return np.asarray(np.where(exponent < 0, inverse, raised)).astype(base.dtype, copy=False)
    with np.errstate(all="ignore"):
        return np.asarray(np.power(base, exponent)).astype(base.dtype, copy=False)


@own("Sqrt", since=6)
def square_root(x: Array) -> Array:
    """Take square roots; NaN below zero."""
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(x)).astype(x.dtype, copy=False)


_erf = np.frompyfunc(math.erf, 1, 1)


@own("Erf", since=9)
def error_function(x: Array) -> Array:
    """Compute the error function in double precision; onnx.reference rounds to float32 first."""
    return np.asarray(_erf(x.astype(np.float64))).astype(np.float64).astype(x.dtype)


# onnx.reference fails for scalars.
@own("Softsign", since=1)
def softsign(x: Array) -> Array:
    """Compute x / (1 + |x|)."""
    return np.asarray(x / (1 + np.abs(x))).astype(x.dtype)


# onnx.reference takes the logarithm of an exponential that overflows from 89 on.
@own("Softplus", since=1)
def softplus(x: Array) -> Array:
    """Compute log(1 + exp(x)), which is x where that is large."""
    wide = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.asarray(np.logaddexp(wide, wide.dtype.type(0))).astype(x.dtype, copy=False)


# onnx.reference takes the logarithm of a softmax that vanishes from 104 below the greatest on.
@own("LogSoftmax", since=13)
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """Return the logarithm of softmax, also where softmax itself would vanish."""
    if not x.size:
        return x.copy()
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=axis, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


# onnx.reference adds up slope times what is below zero and the rest: 0 times an infinity is NaN.
@own("PRelu", since=7)
def prelu(x: Array, slope: Array) -> Array:
    """Multiply what is below zero by a slope, spread over x; else its one axis is channels.

    Raises ValueError for slopes that cannot be.
    """
    if slope.ndim == 1 and x.ndim > 1 and len(slope) not in (1, x.shape[-1]):
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    slope = np.broadcast_to(slope, x.shape)
    with np.errstate(all="ignore"):
        return np.where(x < 0, x * slope, x).astype(x.dtype, copy=False)
