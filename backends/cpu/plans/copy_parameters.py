"""Copies between strided layouts, with as few axes as describe them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .operand_layout import Layout

__all__ = ["copy_parameters", "merged_axes"]


def copy_parameters(source: Layout, target: Layout) -> list[int]:
    """Return the parameters of the native kernel ``copy`` for two layouts of one shape."""
    assert source.shape == target.shape
    assert source.strides is not None
    assert target.strides is not None
    item = source.dtype.item_bytes
    axes = merged_axes(source.shape, source.strides, target.strides)
    flat = [number for dim, a, b in axes for number in (dim, a * item, b * item)]
    return [item, len(axes), *flat]


def merged_axes(
    shape: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> list[tuple[int, int, int]]:
    """List (length, stride, stride) without axes of length 1, neighbours joined where both allow.

    The last axis is the one that the copy's inner loop runs over.
    """
    merged: list[tuple[int, int, int]] = []
    for dim, a, b in zip(shape, source, target, strict=True):
        if dim == 1:
            continue
        if merged:
            outer, outer_a, outer_b = merged[-1]
            if outer_a == a * dim and outer_b == b * dim:
                merged[-1] = (outer * dim, a, b)
                continue
        merged.append((dim, a, b))
    return merged
