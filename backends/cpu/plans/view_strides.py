"""Strides of views: pure arithmetic, in elements."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.lowering.strides import row_major

__all__ = ["memory_order", "ordered_strides", "reshaped_strides"]


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the strides that show the same elements in the same order in another shape.

    None if no strides do and the elements have to be copied. Both shapes hold as many elements.
    """
    if 0 in shape:
        return tuple(row_major(wanted))
    axes = [(dim, stride) for dim, stride in zip(shape, strides, strict=True) if dim != 1]
    found: list[int | None] = [None] * len(wanted)
    old, new = len(axes) - 1, len(wanted) - 1
    while new >= 0:
        if wanted[new] == 1:
            new -= 1
            continue
        if old < 0:
            return None
        # Walk outwards over as many axes of either shape as hold the same elements.
        dim, stride = axes[old]
        first, count = new, wanted[new]
        old -= 1
        while dim != count:
            if dim < count:
                if old < 0 or axes[old][1] != dim * stride:
                    return None
                dim *= axes[old][0]
                old -= 1
            else:
                new -= 1
                if new < 0:
                    return None
                count *= wanted[new]
        step = stride
        for axis in range(first, new - 1, -1):
            found[axis] = step
            step *= wanted[axis]
        new -= 1
    return tuple(
        default if stride is None else stride
        for stride, default in zip(found, row_major(wanted), strict=True)
    )


def memory_order(strides: Sequence[int]) -> list[int]:
    """List the axes from the one with the farthest neighbours to the one with the nearest."""
    return sorted(range(len(strides)), key=lambda axis: -strides[axis])


def ordered_strides(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Return the strides of a shape without gaps whose axes lie in this order, the nearest last."""
    strides = dict(zip(order, row_major([shape[axis] for axis in order]), strict=True))
    return [strides[axis] for axis in range(len(shape))]
