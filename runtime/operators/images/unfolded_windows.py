"""Images put together from what windows over them hold: Col2Im, MaxUnpool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..lists import numbers_of
from ..own.own_operators import own
from ..plain_operators import Array

__all__ = ["add_windows", "unpool"]


class _Axis(NamedTuple):
    """An axis of an image and of the windows over it; ``windows`` fit."""

    length: int
    block: int
    dilation: int
    before: int
    after: int
    stride: int

    @property
    def windows(self) -> int:
        reach = self.dilation * (self.block - 1) + 1
        return (self.length + self.before + self.after - reach) // self.stride + 1


# onnx.reference takes a step of Python for each element.
@own("Col2Im", since=18)
def add_windows(
    columns: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Add up windows where they lie over an image; what is outside of it is dropped.

    columns: (N, C * elements of a window, windows). Gives (N, C, *image_shape), summed in the order
    of a window's elements. Raises ValueError for numbers that do not fit.
    """
    lengths, blocks = numbers_of(image_shape), numbers_of(block_shape)
    rank = len(lengths)
    ones = [1] * rank
    rows = [lengths, blocks, dilations or ones, (pads or 2 * [0] * rank)[:rank]]
    rows += [(pads or 2 * [0] * rank)[rank:], strides or ones]
    if any(len(row) != rank for row in rows) or columns.ndim != 3:
        raise ValueError(f"an image of shape {lengths} does not fit {columns.shape} and {rows[1:]}")
    axes = [_Axis(*numbers) for numbers in zip(*rows, strict=True)]
    if any(min(axis.length, axis.block, axis.dilation, axis.stride) < 1 for axis in axes):
        raise ValueError("lengths, blocks, dilations and strides are 1 or more")
    counts = [axis.windows for axis in axes]
    elements, windows = math.prod(blocks), math.prod(counts)
    batch, channels, given = columns.shape
    if min(counts, default=1) < 1 or channels % elements or given != windows:
        raise ValueError(
            f"{windows} windows of {elements} elements are over the image, and columns is "
            f"{columns.shape}; (N, C * {elements}, {windows}) is wanted"
        )
    parts = columns.reshape(batch, channels // elements, elements, *counts)
    wide = np.zeros((*parts.shape[:2], *map(_wide_length, axes)), columns.dtype)
    offsets = itertools.product(*map(range, blocks))
    for element, offset in enumerate(offsets):
        place: tuple[Any, ...] = (..., *map(_places, axes, offset))
        wide[place] += parts[:, :, element]
    inside = [slice(max(axis.before, 0), max(axis.before, 0) + axis.length) for axis in axes]
    image: tuple[Any, ...] = (..., *inside)
    return np.ascontiguousarray(wide[image])


def _wide_length(axis: _Axis) -> int:
    """Return the length of an image with room for all windows."""
    start = max(-axis.before, 0)
    reach = start + (axis.windows - 1) * axis.stride + axis.dilation * (axis.block - 1) + 1
    return max(reach, max(axis.before, 0) + axis.length)


def _places(axis: _Axis, offset: int) -> slice:
    start = max(-axis.before, 0) + offset * axis.dilation
    return slice(start, start + (axis.windows - 1) * axis.stride + 1, axis.stride)


# onnx.reference takes a step of Python for each element.
@own("MaxUnpool", since=11)
def unpool(
    x: Array,
    places: Array,
    output_shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Put each element where it was before pooling, with zeros around.

    x, places: (N, C, ...), places into the flat image that pooling had. That image is the corner of
    one of ``output_shape``. Of two elements for one place the later one stays. Raises ValueError
    for shapes that do not fit, IndexError for a place outside.
    """
    rank = len(kernel_shape)
    padding, steps = pads or [0] * 2 * rank, strides or [1] * rank
    fits = len(padding) == 2 * rank == 2 * len(steps) and x.ndim == rank + 2
    if not fits or places.shape != x.shape:
        raise ValueError(f"x is {x.shape}, places {places.shape}, the kernel {list(kernel_shape)}")
    pooled = [
        (length - 1) * step - before - after + block
        for length, step, before, after, block in zip(
            x.shape[2:], steps, padding[:rank], padding[rank:], kernel_shape, strict=True
        )
    ]
    if places.min(initial=0) < 0:
        raise IndexError(f"place {places.min()} is in front of the image")
    image = np.zeros((*x.shape[:2], *pooled), x.dtype)
    image.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    if output_shape is None:
        return image
    made = np.zeros(numbers_of(output_shape), x.dtype)
    made[tuple(map(slice, image.shape))] = image
    return made
