"""Operators that move values without changing them; most give views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .registry import Array, kernel

__all__ = ["concat", "flatten", "reshape", "shape", "squeeze", "transpose", "unsqueeze"]


@kernel("Reshape")
def reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Any:
    """View in another shape: -1 is what is left over, 0 the input's length unless allowzero."""
    lengths = shape.tolist()
    if not allowzero and 0 in lengths:
        lengths = [x.shape[axis] if dim == 0 else dim for axis, dim in enumerate(lengths)]
    if lengths and min(lengths) < -1:  # which numpy takes for -1
        raise ValueError(f"{min(lengths)} is no length")
    return x.reshape(lengths)


@kernel("Transpose")
def transpose(x: Array, *, perm: Sequence[int] | None = None) -> Any:
    """View with the axes in another order; reversed by default."""
    return np.transpose(x, perm or None)


@kernel("Flatten")
def flatten(x: Array, *, axis: int = 1) -> Any:
    """View as a matrix: the axes before ``axis``, and the others."""
    axis = axis + x.ndim if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    columns = int(np.prod(x.shape[axis:], dtype=np.int64))
    return x.reshape(rows, columns)


@kernel("Squeeze")
def squeeze(x: Array, axes: Array | None = None) -> Any:
    """View without axes of length 1: those named, or all."""
    return np.squeeze(x, None if axes is None else tuple(axes.ravel().tolist()))


@kernel("Unsqueeze")
def unsqueeze(x: Array, axes: Array) -> Any:
    """View with axes of length 1 put in, counted in the result."""
    return np.expand_dims(x, tuple(axes.ravel().tolist()))


@kernel("Concat")
def concat(*inputs: Array, axis: int) -> Any:
    """Put arrays behind each other along an axis that they have."""
    return np.concatenate(inputs, axis)


@kernel("Shape")
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Any:
    """Return the lengths of the axes, or of a range of them, as int64."""
    return np.array(x.shape[slice(start, end)], np.int64)
