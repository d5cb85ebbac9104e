"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .registry import Array, kernel

__all__ = ["reduce_mean"]


def _axes(x: Array, axes: Array | None, noop_with_empty_axes: int) -> tuple[int, ...]:
    if axes is not None and axes.size:
        return tuple(axes.ravel().tolist())
    return () if noop_with_empty_axes else tuple(range(x.ndim))


@kernel("ReduceMean")
def reduce_mean(
    x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Any:
    """Average over axes, all by default; 0 where there is nothing to average, as onnxruntime."""
    over = _axes(x, axes, noop_with_empty_axes)
    if math.prod(x.shape[axis] for axis in over):
        return np.mean(x, axis=over, keepdims=bool(keepdims), dtype=x.dtype)
    return np.sum(x, axis=over, keepdims=bool(keepdims), dtype=x.dtype)


def _reduction(op_type: str, function: Callable[..., Any]) -> None:
    def operator(
        x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        over = _axes(x, axes, noop_with_empty_axes)
        return function(x, axis=over, keepdims=bool(keepdims), dtype=x.dtype)

    kernel(op_type)(operator)


_reduction("ReduceSum", np.add.reduce)
_reduction("ReduceProd", np.multiply.reduce)
