"""Elementwise operators that onnx.reference gets wrong for some numbers, shapes or threads."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = [
    "error_function",
    "gelu",
    "log_softmax",
    "power",
    "prelu",
    "softplus",
    "softsign",
    "square_root",
]


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
_ERF_END = 4.0
"""From here on erf is 1 in single precision."""
_ERF_ABOVE = (
    *(0.35353099595959, 0.721695447745001, 0.628015082516662, 0.258529909697358),
    *(0.0429373148407232, -0.00334152840483149, -0.000490817465082064),
)
_ERF_BELOW = (
    *(1.0, 2.54085693360959, 2.67301863044774, 1.42466798676017),
    *(0.356396763544534, 0.0153534349240234, -0.00678799888591027),
)
"""erf(x) / x as a fraction of polynomials in x² / 8 - 1, fitted for the least relative error."""
_BLOCK = 1 << 13
"""Elements that stay in a processor's cache from one operation to the next."""


@own("Erf", since=9)
def error_function(x: Array) -> Array:
    """Compute the error function in double precision; onnx.reference rounds to float32 first.

    For types of at most 32 bits by a fraction, with a relative error of 1e-9 before it is rounded.
    """
    return _in_blocks(_error_function, x)


# onnx's body of it rounds to the type of x after each of its steps.
@own("Gelu", since=20)
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """Multiply by the normal distribution, or by what a tanh has for it; rounded at the end.

    Raises ValueError for another approximation.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is {approximate!r}; it may be 'none' or 'tanh'")
    with np.errstate(all="ignore"):
        return _in_blocks(_gelu_by_tanh if approximate == "tanh" else _gelu, x)


def _in_blocks(function: Callable[[Array, bool], Array], x: Array) -> Array:
    """Compute an elementwise function of double precision; it is told if single is enough."""
    is_single = x.dtype.kind not in "iu" and x.dtype.itemsize <= 4
    flat, made = x.reshape(-1), np.empty(x.size, x.dtype)
    for start in range(0, x.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        made[part] = function(flat[part].astype(np.float64), is_single)
    return made.reshape(x.shape)


def _error_function(x: Array, is_single: bool) -> Array:
    if not is_single:
        return np.asarray(_erf(x)).astype(np.float64)
    x = np.clip(x, -_ERF_END, _ERF_END)
    argument = x * x
    argument *= 1 / 8
    argument -= 1
    above, below = (np.multiply(argument, terms[-1]) for terms in (_ERF_ABOVE, _ERF_BELOW))
    for total, terms in ((above, _ERF_ABOVE), (below, _ERF_BELOW)):
        for term in terms[-2:0:-1]:
            total += term
            total *= argument
        total += terms[0]
    above /= below
    above *= x
    return np.asarray(above)


def _gelu(x: Array, is_single: bool) -> Array:
    share = _error_function(x * math.sqrt(0.5), is_single)
    if is_single:
        share = share.astype(np.float32)  # so that nothing is left far below zero
    return np.asarray(x / 2 * (1 + share.astype(np.float64)))


def _gelu_by_tanh(x: Array, is_single: bool) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return np.asarray(x / 2 * (1 + np.tanh(inner)))


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
