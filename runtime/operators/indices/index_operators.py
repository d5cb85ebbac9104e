"""Operators whose data says where elements go, with the bounds that onnx.reference leaves out."""

from __future__ import annotations

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array

_MOST = np.iinfo(np.int64).max


@own("OneHot", since=11)
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """Put ``values[1]`` where an index says, ``values[0]`` elsewhere.

    Negative indices count from the end; the row of one that is out of range is all ``values[0]``.
    Raises ValueError unless ``values`` are two numbers.
    """
    if values.shape != (2,):
        raise ValueError(f"values, which are off and on, are of shape {values.shape}, not (2,)")
    count = int(depth.item())
    if count < 0:
        raise ValueError(f"the depth is {count}, below zero")
    place = axis % (indices.ndim + 1)
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(_MOST))
    with np.errstate(invalid="ignore"):  # a float that is no integer at all is out of range, too
        signed = indices.astype(np.int64)
    signed = np.expand_dims(np.where(signed < 0, signed + count, signed), place)
    steps = np.arange(count).reshape((count, *[1] * (indices.ndim - place)))
    off, on = values
    rows: Array = np.where(signed == steps, on, off)
    return rows.astype(values.dtype)


@own("ReverseSequence", since=10)
def reverse_sequence(x: Array, lengths: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Reverse the first elements of each sequence along the axis of time, as far as its length."""
    rows = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    longest = rows.shape[1]
    wrong = lengths[(lengths < 0) | (lengths > longest)]
    if wrong.size:
        raise IndexError(
            f"a sequence of length {wrong[0]} does not fit axis {time_axis}, of length {longest}"
        )
    steps, ends = np.arange(longest), lengths[:, None]
    order = np.where(steps < ends, ends - 1 - steps, steps)
    turned = rows[np.arange(len(rows))[:, None], order]
    return np.moveaxis(turned, (0, 1), (batch_axis, time_axis))
