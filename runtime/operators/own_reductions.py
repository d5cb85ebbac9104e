"""Reductions that onnx.reference gets wrong for some numbers."""

from __future__ import annotations

import numpy as np

from .own_operators import own
from .plain_operators import Array

__all__ = ["reduce_log_sum_exp"]


# onnx.reference subtracts -inf from -inf, and axes of a vector are an attribute to it.
@own("ReduceLogSumExp", since=18)
def reduce_log_sum_exp(
    x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Array:
    """Compute log(sum(exp(x))) without overflow; -inf for nothing, and for -inf alone."""
    chosen = tuple(axes.ravel().tolist()) if axes is not None and axes.size else None
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
