"""RoiAlign: the mean, or the greatest, of points between the elements of a region of an image."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..plain_operators import Array, plain

__all__ = ["align_regions"]

MOST_SAMPLES = 1 << 22
"""Points along an axis of one region; more are no picture's, but a mistake or an attack."""
MOST_VALUES = 1 << 28
"""At the points of one region, where they are looked at one by one."""
MOST_EACH = 64
"""Values for each element of the result, if ``MOST_VALUES`` are too few for all regions."""


class _Samples(NamedTuple):
    """Points along an axis, (bins, points of a bin): two neighbours of each, and their weights."""

    low: Array
    high: Array
    low_weight: Array
    high_weight: Array


# onnx.reference takes a step of Python for each point, and float16 numbers as coordinates.
@plain("RoiAlign", since=16)
def align_regions(
    x: Array,
    regions: Array,
    batches: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Pool each region into (height, width) bins, from points between the elements.

    x: (N, C, H, W). regions: (R, 4) of x, y, x, y. batches: (R,), the image of each. Gives (R, C,
    height, width). Points more than 1 outside are zero; "max" takes the greatest of the weighted
    neighbours, as ONNX has it. A region that is not finite is zero. Raises ValueError for what does
    not fit, for a region of more points than ``MOST_SAMPLES`` along an axis, and for regions that
    have too many values at their points; IndexError for one of an image that is not there.
    """
    if x.ndim != 4 or regions.shape != (len(batches), 4) or batches.ndim != 1:
        raise ValueError(
            f"x is {x.shape}, regions {regions.shape}, batches {batches.shape}; (N, C, H, W), "
            f"(R, 4) and (R,) are wanted"
        )
    if batches.size and not 0 <= int(batches.min()) <= int(batches.max()) < len(x):
        raise IndexError(f"regions are of images {batches.min()} to {batches.max()} of {len(x)}")
    wide = np.result_type(x.dtype, np.float32)
    images = x.astype(wide, copy=False)
    bins, lengths = (output_height, output_width), x.shape[2:]
    is_half = coordinate_transformation_mode == "half_pixel"
    corners = regions.astype(wide) * wide.type(spatial_scale) - wide.type(0.5 if is_half else 0)
    made = np.zeros((len(batches), x.shape[1], *bins), wide)
    if 0 in made.shape or 0 in lengths:
        return made.astype(x.dtype)
    is_mean = mode == "avg"
    is_finite = not is_mean or bool(np.isfinite(images).all())
    pool = _greatest if not is_mean else _mean_by_matrices if is_finite else _mean_of_any
    axes = [
        [
            _axis(*ends, bins[axis], sampling_ratio, is_half)
            for axis, ends in enumerate(((top, bottom), (left, right)))
        ]
        for left, top, right, bottom in corners
    ]
    _check_values(made.shape, axes, are_compared=not is_mean)
    for place, (of_rows, of_columns) in enumerate(axes):
        if not of_rows.each or not of_columns.each:
            continue
        rows = _samples(of_rows, bins[0], lengths[0])
        columns = _samples(of_columns, bins[1], lengths[1])
        made[place] = pool(images[batches[place]], rows, columns)
    return made.astype(x.dtype, copy=False)


class _Axis(NamedTuple):
    """A region along an axis: where it starts, its size, and the points of each bin."""

    start: np.floating
    size: np.floating
    each: int


def _axis(start: np.floating, end: np.floating, bins: int, ratio: int, is_half: bool) -> _Axis:
    size = end - start if is_half else max(end - start, type(end)(1))
    if not math.isfinite(size):
        return _Axis(start, size, 0)
    count = max(ratio if ratio > 0 else math.ceil(size / bins), 0)
    if count * bins > MOST_SAMPLES:
        raise ValueError(
            f"a region from {start} to {end} has {count * bins} points along an axis, and "
            f"{MOST_SAMPLES} are taken; give smaller regions"
        )
    return _Axis(start, size, count)


def _check_values(shape: tuple[int, ...], axes: list[list[_Axis]], *, are_compared: bool) -> None:
    """Raise ValueError if a result of that shape has too many values at points of its regions.

    Means count the points along axes alone: their weights are those of rows by those of columns.
    """
    most, total = max(MOST_VALUES, MOST_EACH * math.prod(shape)), 0
    for place, (rows, columns) in enumerate(axes):
        along = rows.each * shape[2], columns.each * shape[3]
        values = 0 if 0 in along else shape[1] * math.prod(along) if are_compared else sum(along)
        total += values
        if values > MOST_VALUES or total > most:
            raise ValueError(
                f"with region {place} there are {total} values at points of regions, and a region "
                f"may have {MOST_VALUES}, all of them {most}; give smaller regions, or fewer"
            )


def _samples(axis: _Axis, bins: int, length: int) -> _Samples:
    """Place the points of a region along an axis that has some."""
    start, size, count = axis
    step = size / type(size)(bins)
    inside = (np.arange(count, dtype=step.dtype) + step.dtype.type(0.5)) * step
    points = (
        start + np.arange(bins, dtype=step.dtype)[:, None] * step + inside / step.dtype.type(count)
    )
    is_outside = (points < -1) | (points > length)
    points = np.clip(points, 0, length - 1)
    low = points.astype(np.intp)
    high = np.minimum(low + 1, length - 1)
    high_weight = points - low.astype(points.dtype)
    low_weight = 1 - high_weight
    for weight in (low_weight, high_weight):
        weight[is_outside] = 0
    return _Samples(low, high, low_weight, high_weight)


def _mean_by_matrices(image: Array, rows: _Samples, columns: _Samples) -> Array:
    """Take the mean over the points of each bin as two matmuls: weights are rows by columns."""
    (first_row, by_rows), (first_column, by_columns) = map(_matrix, (rows, columns))
    part = image[
        :,
        first_row : first_row + by_rows.shape[1],
        first_column : first_column + by_columns.shape[1],
    ]
    return np.asarray(by_rows @ (part @ by_columns.T))


def _matrix(samples: _Samples) -> tuple[int, Array]:
    """Return the first element that counts, and the share of each from there on in each bin."""
    first, last = int(samples.low.min()), int(samples.high.max())
    bins = np.arange(len(samples.low))[:, None]
    matrix = np.zeros((len(bins), last - first + 1), samples.low_weight.dtype)
    np.add.at(matrix, (bins, samples.low - first), samples.low_weight)
    np.add.at(matrix, (bins, samples.high - first), samples.high_weight)
    return first, matrix / matrix.dtype.type(samples.low.shape[1])


def _mean_of_any(image: Array, rows: _Samples, columns: _Samples) -> Array:
    """Take means where numbers may be infinite or NaN: these count where they are neighbours.

    Also a neighbour of weight 0 counts, which makes NaN of infinity.
    """
    is_finite = np.isfinite(image)
    made = _mean_by_matrices(np.where(is_finite, image, 0), rows, columns)
    (row_parts, row_zeros), (column_parts, column_zeros) = (
        _neighbours(samples, length)
        for samples, length in zip((rows, columns), image.shape[1:], strict=True)
    )
    all_rows, all_columns = row_parts | row_zeros, column_parts | column_zeros

    def is_near(kind: Array, by_rows: Array, by_columns: Array) -> Array:
        counts = by_rows.astype(np.float32) @ kind.astype(np.float32)
        return np.asarray(counts @ by_columns.T.astype(np.float32) > 0)

    above, below = (is_near(image == end, row_parts, column_parts) for end in (np.inf, -np.inf))
    is_infinite = np.isinf(image)
    is_nan = is_near(np.isnan(image), all_rows, all_columns) | (above & below)
    is_nan |= is_near(is_infinite, row_zeros, all_columns)
    is_nan |= is_near(is_infinite, all_rows, column_zeros)
    made[above], made[below], made[is_nan] = np.inf, -np.inf, np.nan
    return made


def _neighbours(samples: _Samples, length: int) -> tuple[Array, Array]:
    """Say which elements are neighbours with a weight, and which with weight 0: (bins, length)."""
    bins = np.arange(len(samples.low))[:, None]
    found = []
    for is_zero in (False, True):
        is_there = np.zeros((len(samples.low), length), np.bool_)
        for places, weights in (
            (samples.low, samples.low_weight),
            (samples.high, samples.high_weight),
        ):
            is_meant = (weights == 0) == is_zero
            is_there[np.broadcast_to(bins, places.shape)[is_meant], places[is_meant]] = True
        found.append(is_there)
    return found[0], found[1]


def _greatest(image: Array, rows: _Samples, columns: _Samples) -> Array:
    weighted = _weighted(image, rows, columns)
    return np.asarray(np.maximum.reduce(weighted).max(axis=(2, 4)))


def _weighted(image: Array, rows: _Samples, columns: _Samples) -> list[Array]:
    """Return the four neighbours of each point, times their weights: (C, bins, n, bins, n)."""
    found = []
    for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight)):
        part = image[:, row]
        for column, weight in (
            (columns.low, columns.low_weight),
            (columns.high, columns.high_weight),
        ):
            found.append(part[:, :, :, column] * (row_weight[:, :, None, None] * weight))
    return found
