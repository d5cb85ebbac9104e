"""Pools: a running maximum or sum over the positions inside the windows; LRN, over channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plain_operators import Array, plain
from .window_views import Axis, offsets, pad, plan_axes, shifted

__all__ = [
    "average_pool",
    "global_average_pool",
    "global_max_pool",
    "local_response",
    "lp_pool",
    "max_pool",
]


@plain("MaxPool", since=11, takes_output_count=True)
def max_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    output_count: int = 1,
) -> Array | tuple[Array, Array]:
    """Take the maximum of each window, and, for a second output, where in x it was found.

    x: (N, C, ...). Indices count through the whole of x; with storage_order 1 each channel is
    counted column by column. The first of equal maxima counts.
    """
    axes = plan_axes(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=bool(ceil_mode),
    )
    if output_count > 1:
        return _max_with_indices(x, axes, storage_order)
    padded = pad(x, axes, _lowest(x.dtype))
    steps = offsets(axes)
    best = shifted(padded, axes, next(steps)).copy()
    for offset in steps:
        np.maximum(best, shifted(padded, axes, offset), out=best)
    return best


def _lowest(dtype: np.dtype) -> object:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    if dtype.kind == "b":
        return False
    return -np.inf


def _max_with_indices(x: Array, axes: Sequence[Axis], storage_order: int) -> tuple[Array, Array]:
    padded = pad(x, axes, _lowest(x.dtype))
    rank = len(axes)
    lengths = x.shape[2:]
    order = range(rank) if storage_order else range(rank - 1, -1, -1)
    pitch, unit = [0] * rank, 1
    for index in order:
        pitch[index], unit = unit, unit * lengths[index]
    shape = (*x.shape[:2], *[axis.count for axis in axes])
    best = np.full(shape, _lowest(x.dtype), x.dtype)
    where = np.full(shape, -1, np.int64)
    for offset in offsets(axes):
        place: Array = np.zeros((1,) * rank, np.int64)
        inside: Array = np.ones((1,) * rank, bool)
        for index, axis in enumerate(axes):
            positions = axis.positions(offset[index])
            along = [1] * rank
            along[index] = axis.count
            place = place + (positions * pitch[index]).reshape(along)
            inside = inside & ((positions >= 0) & (positions < axis.length)).reshape(along)
        found = shifted(padded, axes, offset)
        better = inside & ((where < 0) | (found > best))
        best = np.where(better, found, best)
        where = np.where(better, place, where)
    channel = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * rank)
    return best, where + channel * math.prod(lengths)


@plain("AveragePool", since=11, later={"dilations": 19})
def average_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Average each window, over what lies in x or, with count_include_pad, in x and its padding.

    x: (N, C, ...). What a window of ceil_mode reads beyond the padding never counts.
    """
    axes = plan_axes(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=bool(ceil_mode),
    )
    work = np.float64 if x.dtype == np.float64 else np.float32
    total = _sum(x.astype(work, copy=False), axes)
    for index, axis in enumerate(axes):
        low = -axis.begin if count_include_pad else 0
        high = axis.length + axis.end if count_include_pad else axis.length
        positions = np.stack([axis.positions(offset) for offset in range(axis.kernel)])
        counts = np.sum((positions >= low) & (positions < high), axis=0)
        total /= counts.astype(work).reshape(-1, *[1] * (len(axes) - 1 - index))
    return total.astype(x.dtype, copy=False)


def _sum(x: Array, axes: Sequence[Axis]) -> Array:
    padded = pad(x, axes, 0)
    steps = offsets(axes)
    total = shifted(padded, axes, next(steps)).copy()
    for offset in steps:
        total += shifted(padded, axes, offset)
    return total


@plain("LpPool", since=18)
def lp_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Take the p-norm of each window; padding counts as zeros. x: (N, C, ...)."""
    axes = plan_axes(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=bool(ceil_mode),
    )
    work = np.float64 if x.dtype == np.float64 else np.float32
    total = _sum(np.abs(x.astype(work, copy=False)) ** p, axes)
    return np.asarray(total ** (1.0 / p)).astype(x.dtype, copy=False)


@plain("GlobalAveragePool", since=1)
def global_average_pool(x: Array) -> Array:
    """Average over all spatial axes, 0 of nothing. x: (N, C, ...); gives (N, C, 1, ...)."""
    axes = tuple(range(2, x.ndim))
    count = max(math.prod(x.shape[2:]), 1)
    work = np.float32 if x.dtype == np.float16 or x.dtype.kind == "V" else x.dtype
    total = np.add.reduce(x, axis=axes, keepdims=True, dtype=work)
    return np.asarray(total / np.asarray(count, total.dtype)).astype(x.dtype, copy=False)


@plain("GlobalMaxPool", since=1)
def global_max_pool(x: Array) -> Array:
    """Take the maximum over all spatial axes; that of nothing is -inf, as for MaxPool.

    x: (N, C, ...); gives (N, C, 1, ...).
    """
    return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True, initial=-np.inf))


@plain("LRN", since=1)
def local_response(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Any:
    """Divide by a power of the squares summed over ``size`` neighbouring channels.

    x: (N, C, ...). onnx.reference sums for the first N channels only.
    """
    squares = np.square(x.astype(np.float64))
    before, after = (size - 1) // 2, math.ceil((size - 1) / 2) + 1
    sums = np.zeros_like(squares)
    channels = x.shape[1]
    for channel in range(channels):
        near = slice(max(channel - before, 0), min(channel + after, channels))
        sums[:, channel] = squares[:, near].sum(axis=1)
    return (x / (bias + (alpha / size) * sums) ** beta).astype(x.dtype)
