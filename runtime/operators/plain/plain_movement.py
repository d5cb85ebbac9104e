"""Plain operators that move, select or make elements without computing with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..lists import numbers_of
from ..plain_operators import Array, plain

__all__ = [
    "concat",
    "constant_of_shape",
    "count_range",
    "flatten",
    "pad",
    "reshape",
    "shape",
    "size",
    "slice_axes",
    "split",
    "squeeze",
    "tile",
    "transpose",
    "triangle",
    "unsqueeze",
]


@plain("Shape", since=1, later={"start": 15, "end": 15})
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Return the lengths of the axes, or of a range of them, as int64."""
    return np.array(x.shape[start:end], np.int64)


@plain("Size", since=1)
def size(x: Array) -> Array:
    """Count the elements, as int64."""
    return np.array(x.size, np.int64)


@plain("Reshape", since=5, later={"allowzero": 14})
def reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """View in another shape: -1 is what is left over, 0 the input's length unless allowzero."""
    lengths = numbers_of(shape)
    if allowzero != 1:
        lengths = [length or x.shape[axis] for axis, length in enumerate(lengths)]
    if lengths and min(lengths) < -1:  # which numpy takes for -1
        raise ValueError(f"{min(lengths)} is no length")
    return x.reshape(lengths)


@plain("Flatten", since=1)
def flatten(x: Array, *, axis: int = 1) -> Array:
    """View as a matrix: the axes before ``axis``, and the others."""
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@plain("Squeeze", since=13)
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """View without axes of length 1: those named, or all."""
    return x.squeeze(None if axes is None else tuple(numbers_of(axes, may_be_one=True)))


@plain("Unsqueeze", since=13)
def unsqueeze(x: Array, axes: Array) -> Array:
    """View with axes of length 1 put in, counted in the result."""
    places = numbers_of(axes, may_be_one=True)
    if places == [0]:
        return x[np.newaxis]
    return np.expand_dims(x, tuple(places))


@plain("Transpose", since=1)
def transpose(x: Array, *, perm: Sequence[int] | None = None) -> Array:
    """View with the axes in another order; reversed by default."""
    return x.transpose(perm or None)


@plain("Concat", since=4)
def concat(first: Array, *others: Array, axis: int) -> Array:
    """Put arrays behind each other along an axis that they have."""
    made: Array = np.concatenate((first, *others), axis)
    return made if made.dtype == first.dtype else made.astype(first.dtype)


@plain("Slice", since=10)
def slice_axes(
    x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    """View a range of each axis named, or of the first ones; bounds beyond an axis are its ends.

    As numpy, but with a negative step a start before the first element counts as the first.
    """
    begins = numbers_of(starts)
    places = range(len(begins)) if axes is None else numbers_of(axes)
    strides = [1] * len(begins) if steps is None else numbers_of(steps)
    ranges = [slice(None)] * x.ndim
    for begin, end, place, stride in zip(begins, numbers_of(ends), places, strides, strict=True):
        is_before = stride < 0 and begin < -x.shape[place]
        ranges[place] = slice(0 if is_before else begin, end, stride)
    return np.asarray(x[tuple(ranges)])


@plain("Split", since=13, later={"num_outputs": 18}, takes_output_count=True)
def split(
    x: Array,
    split: Array | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int,
) -> tuple[Array, ...]:
    """View as parts of the lengths given, or of one length; the last takes what is left over."""
    if split is None:
        count = num_outputs or output_count
        edges = [part * -(-x.shape[axis] // count) for part in range(count)] + [x.shape[axis]]
    else:
        edges = [0, *itertools.accumulate(numbers_of(split))]
        if edges[-1] != x.shape[axis] or edges != sorted(edges):
            raise ValueError(
                f"parts of {split.tolist()} do not make up an axis of length {x.shape[axis]}"
            )
    ranges = [slice(None)] * x.ndim
    parts = []
    for start, stop in itertools.pairwise(edges):
        ranges[axis] = slice(start, stop)
        parts.append(x[tuple(ranges)])
    return tuple(parts)


@plain("Tile", since=6)
def tile(x: Array, repeats: Array) -> Array:
    """Repeat the whole along each axis; ValueError unless there is one count for each of them."""
    counts = numbers_of(repeats)
    if len(counts) != x.ndim:
        raise ValueError(f"{len(counts)} repeats are given for {x.ndim} axes")
    return np.tile(x, counts)


@plain("Trilu", since=14)
def triangle(x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """Keep what lies on the k-th diagonal of each matrix and above, or below; else zeros."""
    keep = np.triu if upper else np.tril
    return np.asarray(keep(x, 0 if k is None else k.item())).astype(x.dtype, copy=False)


@plain("ConstantOfShape", since=9)
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Array:
    """Fill a shape with one element; a float32 of 0 by default."""
    if value is None or (value.size == 1 and not any(value.tobytes())):
        return np.zeros(numbers_of(shape), np.float32 if value is None else value.dtype)
    made: Array = np.empty(numbers_of(shape), value.dtype)
    made.fill(value.item() if value.dtype == object else value.reshape(())[()])
    return made


@plain("Range", since=11)
def count_range(start: Array, limit: Array, delta: Array) -> Array:
    """Count from start in steps of delta; limit itself is left out."""
    first, end, step = start.item(), limit.item(), delta.item()
    if isinstance(step, int) and step:  # numpy divides, in floating point
        count = max(0, -((first - end) // step))
        return np.asarray(first + step * np.arange(count), start.dtype)
    return np.arange(first, end, step).astype(start.dtype)


_PAD_MODES = ("constant", "edge", "reflect", "wrap")


@plain("Pad", since=11, accepts=lambda node: node.attributes.get("mode", "constant") in _PAD_MODES)
def pad(
    x: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> Array:
    """Take elements off where a pad is negative; then put some before and behind what is left.

    These are constants, or what is left is repeated. ValueError where it is nothing, and for an
    axis that is named twice.
    """
    places = list(range(x.ndim)) if axes is None else numbers_of(axes)
    counts = numbers_of(pads)
    if len(counts) != 2 * len(places):
        raise ValueError(f"{len(counts)} pads are given for {len(places)} axes; give two for each")
    if len({place % x.ndim for place in places}) < len(places):
        raise ValueError(f"axes {places} of {x.ndim} name one twice")
    if mode != "constant":
        return _repeated_around(x, places, counts, mode)
    lengths = list(x.shape)
    sources, targets = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for place, before, behind in zip(places, counts, counts[len(places) :], strict=False):
        length = x.shape[place]
        lengths[place] = length + before + behind
        start, stop = max(-before, 0), min(length, length + behind)
        kept = max(stop - start, 0)
        sources[place] = slice(start, start + kept)
        targets[place] = slice(start + before, start + before + kept)
    fill = _zero_of(x) if constant_value is None else constant_value.reshape(())
    padded = np.full(lengths, fill, x.dtype)
    padded[tuple(targets)] = x[tuple(sources)]
    return padded


def _repeated_around(x: Array, places: Sequence[int], counts: Sequence[int], mode: Any) -> Array:
    kept, widths = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for place, before, behind in zip(places, counts, counts[len(places) :], strict=False):
        start, stop = max(-before, 0), min(x.shape[place], x.shape[place] + behind)
        if start > stop:
            raise ValueError(f"pads of {[before, behind]} take more than axis {place} has")
        kept[place] = slice(start, stop)
        widths[place] = max(before, 0), max(behind, 0)
    return np.pad(x[tuple(kept)], widths, mode=mode)


def _zero_of(x: Array) -> object:
    return "" if x.dtype == object else 0


@plain("NonZero", since=9)
def nonzero(x: Array) -> Array:
    """List where elements are not 0, a row for each axis, as int64."""
    if x.ndim == 1:
        return np.asarray(x.nonzero()[0][np.newaxis], np.int64)
    return np.array(np.nonzero(x), np.int64)


@plain("Compress", since=9)
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """Take the slices of an axis, or the elements, whose condition is true."""
    return np.compress(condition, x, axis=axis)
