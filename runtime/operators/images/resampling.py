"""Which elements of an axis make each element of the resized axis, and with which weights. Pure.

Source of the formulas: ONNX's operator Resize, and where its text can be read in two ways what
onnxruntime does: the length of the result is the whole one, places are numbers of float32, and an
axis whose scale is 1 stays as it is, also where a part of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "COORDINATES",
    "NEAREST",
    "Resampling",
    "WeightedIndices",
    "linear_pairs",
    "nearest_indices",
    "weighted_indices",
]

Array = np.ndarray[Any, Any]
_Coordinates = Callable[["Resampling", Array], Array]

_HALF = np.float32(0.5)
_NEARLY = 1e-6  # how far from a half a place is between two elements all the same, as measured


@dataclass(frozen=True)
class Resampling:
    """How one axis is resized: from ``length`` to ``count`` elements.

    ``scale`` is what the node says, or the quotient of the lengths; ``count`` may be less than it
    makes. ``start`` and ``end`` are the part that tf_crop_and_resize takes, from 0 to 1.
    """

    length: int
    count: int
    scale: np.float32
    coordinates: str = "half_pixel"
    start: float = 0.0
    end: float = 1.0

    def places(self) -> Array:
        """Return the place in the input, with fractions, of each element of the result; float64.

        The numbers are those of float32, so that what lies between two elements, or on the border
        of what is taken, lies there for onnxruntime, too.
        """
        own = np.arange(self.count, dtype=np.float32)
        found = own if self.scale == 1 else COORDINATES[self.coordinates](self, own)
        return found.astype(np.float32).astype(np.float64)

    def outside(self) -> Array:
        """Return which elements of the result lie outside of what is cropped; bool."""
        if self.coordinates != "tf_crop_and_resize":
            return np.zeros(self.count, np.bool_)
        places = self.places()
        return (places < 0) | (places > self.length - 1)


def _half_pixel(axis: Resampling, places: Array) -> Array:
    return _tf_half_pixel_for_nn(axis, places) - _HALF


def _tf_half_pixel_for_nn(axis: Resampling, places: Array) -> Array:
    return np.asarray((places + _HALF) / axis.scale)


def _half_pixel_symmetric(axis: Resampling, places: Array) -> Array:
    adjustment = np.float32(axis.count) / (axis.scale * np.float32(axis.length))
    offset = np.float32(axis.length / 2) * (1 - adjustment)
    return np.asarray(float(offset) + (places + 0.5).astype(np.float64) / float(axis.scale) - 0.5)


def _pytorch_half_pixel(axis: Resampling, places: Array) -> Array:
    return _half_pixel(axis, places) if axis.count > 1 else np.zeros_like(places)


def _asymmetric(axis: Resampling, places: Array) -> Array:
    return np.asarray(places / axis.scale)


def _align_corners(axis: Resampling, places: Array) -> Array:
    if axis.count == 1:
        return np.zeros_like(places)
    return np.asarray(places * np.float32(axis.length - 1) / np.float32(axis.count - 1))


def _crop(axis: Resampling, places: Array) -> Array:
    start, end, last = (np.float32(number) for number in (axis.start, axis.end, axis.length - 1))
    if axis.count == 1:
        return np.full_like(places, 0.5 * float(start + end) * float(last))
    return np.asarray(start * last + places * (end - start) * last / np.float32(axis.count - 1))


COORDINATES: Mapping[str, _Coordinates] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_crop_and_resize": _crop,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
}
"""From the indices in the result, of float32; those of one that is cropped may lie outside."""

NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5 + _NEARLY),
    "round_prefer_floor": lambda places: np.ceil(places - 0.5 - _NEARLY),
}


@dataclass(frozen=True)
class WeightedIndices:
    """Element o of the result is ``offsets[o]`` plus the sum of weights times elements.

    ``indices`` and ``weights`` are (count, elements read).
    """

    indices: Array
    weights: Array
    offsets: Array = field(repr=False)

    def is_identity(self, length: int) -> bool:
        """True if ``length`` elements are all repeated once, each at its own place."""
        if len(self.indices) != length or self.offsets.any():
            return False
        own = self.indices == np.arange(length)[:, None]
        return bool((own | (self.weights == 0)).all() and (self.weights.sum(axis=1) == 1).all())


def nearest_indices(axis: Resampling, rounding: str) -> Array:
    """Return the index of the element that each element of the result repeats; int32."""
    return _clamped(NEAREST[rounding](axis.places()), axis)


def weighted_indices(
    axis: Resampling,
    mode: str,
    *,
    rounding: str = "round_prefer_floor",
    cubic: float = -0.75,
    is_antialiased: bool = False,
    excludes_outside: bool = False,
    outside: float = 0.0,
    dtype: type[np.floating[Any]] = np.float32,
) -> WeightedIndices:
    """Return what ``nearest``, ``linear`` or ``cubic`` interpolation reads; weights of ``dtype``.

    ``cubic`` is the coefficient a of the cubic kernel. ``outside`` is what tf_crop_and_resize gives
    where its part reaches beyond the input.
    """
    places = axis.places()
    if is_antialiased and axis.count == axis.length:
        places = np.arange(axis.count, dtype=np.float64)  # onnxruntime filters what changes
    if mode == "nearest":
        indices = NEAREST[rounding](places)[:, None]
        weights = np.ones_like(indices)
    else:
        reach = 1 if mode == "linear" else 2
        is_shrunk = is_antialiased and axis.count != axis.length
        scale = min(float(axis.scale), 1.0) if is_shrunk else 1.0
        half = -int(np.floor(-reach / scale))
        first = np.ceil(places) - half
        indices = first[:, None] + np.arange(2 * half)
        number = dtype if is_antialiased else None
        distances = _distances(indices, places, axis.scale if is_shrunk else np.float32(1), number)
        weights = _linear(distances) if mode == "linear" else _cubic(distances, cubic)
        if excludes_outside:
            weights = np.where((indices < 0) | (indices >= axis.length), 0, weights)
        if is_antialiased or excludes_outside:
            one = weights.dtype.type(1)
            weights = weights * (one / _sum_in_order(weights))[:, None]
    is_outside = axis.outside()
    weights = np.where(is_outside[:, None], 0.0, weights)
    offsets = np.where(is_outside, outside, 0.0).astype(dtype)
    return WeightedIndices(_clamped(indices, axis), weights.astype(dtype), offsets)


def linear_pairs(axis: Resampling, *, in_10_bits: bool = False) -> WeightedIndices:
    """Return the two elements that linear interpolation reads, in order; weights of float32.

    They are rounded as onnxruntime rounds them, which shows where a result is cut to an integer:
    the two weights of an element need not add up to one, and are halves at the end of an axis.
    Those of 10 bits are whole, and 1024 times as large.
    """
    places = axis.places().astype(np.float32)
    inside = np.clip(places, 0, axis.length - 1)
    first = inside.astype(np.int32)
    indices = np.stack([first, np.minimum(first + 1, axis.length - 1)], axis=1)
    one = 1 << 10 if in_10_bits else 1
    if in_10_bits:
        inside = np.trunc(inside * one)
    others = (indices[:, ::-1] * one).astype(np.float32)
    weights = np.abs(others - inside[:, None])
    weights[indices[:, 0] == indices[:, 1]] = one / 2
    return WeightedIndices(indices, weights, np.zeros(axis.count))


def _distances(
    indices: Array, places: Array, scale: np.float32, dtype: type[np.floating[Any]] | None
) -> Array:
    """Return how far elements are from places, by the reach of a filter if an axis shrinks.

    ``dtype`` is that of what is filtered, and None where nothing is. Those of float32 are rounded
    as onnxruntime rounds them, which shows where a sum is rounded to an integer.
    """
    if dtype is None:
        return np.asarray(np.abs(indices - places[:, None]))
    shrinkage = min(dtype(scale), dtype(1))
    middles = places.astype(dtype)[:, None] + dtype(0.5)
    apart = indices.astype(dtype) - middles + dtype(0.5)
    return np.asarray(np.abs(apart * (dtype(1) / (dtype(1) / shrinkage))))


def _sum_in_order(weights: Array) -> Array:
    """Add up the weights of each element from the first one on."""
    total = np.zeros(len(weights), weights.dtype)
    for column in weights.T:
        total += column
    return total


def _linear(distances: Array) -> Array:
    return np.asarray(np.clip(1 - distances, 0, 1))


def _cubic(distances: Array, a: float) -> Array:
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((distances - 5) * distances + 8) * distances * a - 4 * a
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0.0))


def _clamped(indices: Array, axis: Resampling) -> Array:
    return np.asarray(np.clip(indices, 0, axis.length - 1), np.int32)
