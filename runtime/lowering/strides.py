"""Strides of dense tensors. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["row_major"]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor in C order, in elements.

    An axis without elements counts as one with a single element.
    """
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis] or 1
    return tuple(strides)
