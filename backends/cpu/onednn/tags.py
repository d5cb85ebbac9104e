"""Layouts in oneDNN's notation: ``abcd`` is row-major, ``acdb`` channels last, ``aBcd16b`` blocked.

A letter is an axis; outer ones come first. A capital axis is cut into blocks, which follow inside,
each with its length.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["layout_tag"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def layout_tag(
    shape: Sequence[int], strides: Sequence[int], blocks: Sequence[tuple[int, int]] = ()
) -> str:
    """Return the order of the axes in memory; ``blocks`` are (axis, length) from outer to inner.

    Axes of length 1 lie anywhere and are named where row-major order has them. Pure.
    """
    if not shape:
        return "scalar"
    if len(shape) > len(_LETTERS):
        return "strided"
    cut = {axis for axis, _ in blocks}
    order = _outer_first(shape, strides)
    outer = "".join(_LETTERS[axis].upper() if axis in cut else _LETTERS[axis] for axis in order)
    return outer + "".join(f"{length}{_LETTERS[axis]}" for axis, length in blocks)


def _outer_first(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Sort the axes by stride, and put those of length 1 back right after their left neighbour."""
    long = [axis for axis, dim in enumerate(shape) if dim != 1]
    order = sorted(long, key=lambda axis: (-strides[axis], axis))
    for axis, dim in enumerate(shape):
        if dim == 1:
            order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return order
