"""Which elements of an axis make each element of the resized axis, and with which weights. Pure.

Source of the formulas: ONNX's operator Resize, and onnx.reference where its text is silent.
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
    "nearest_indices",
    "weighted_indices",
]

Array = np.ndarray[Any, Any]
_Coordinates = Callable[["Resampling", Array], Array]


@dataclass(frozen=True)
class Resampling:
    """How one axis is resized: from ``length`` to ``count`` elements.

    ``scale`` is what the node says, or the quotient of the lengths; ``count`` may be less than it
    makes. ``start`` and ``end`` are the part that tf_crop_and_resize takes, from 0 to 1.
    """

    length: int
    count: int
    scale: np.floating[Any]
    coordinates: str = "half_pixel"
    start: float = 0.0
    end: float = 1.0

    @property
    def resized(self) -> float:
        """The length that the scale makes, before it is rounded down."""
        return float(self.scale * self.length)

    def places(self) -> Array:
        """Return the place in the input, with fractions, of each element of the result."""
        found = COORDINATES[self.coordinates](self, np.arange(self.count, dtype=np.float64))
        return np.asarray(found, np.float64)


def _half_pixel(axis: Resampling, places: Array) -> Array:
    return (places + 0.5) / float(axis.scale) - 0.5


def _half_pixel_symmetric(axis: Resampling, places: Array) -> Array:
    shift = axis.length / 2 * (1 - axis.count / axis.resized)
    return np.asarray(shift + _half_pixel(axis, places))


def _pytorch_half_pixel(axis: Resampling, places: Array) -> Array:
    return np.zeros_like(places) if axis.resized == 1 else _half_pixel(axis, places)


def _asymmetric(axis: Resampling, places: Array) -> Array:
    return places / float(axis.scale)


def _align_corners(axis: Resampling, places: Array) -> Array:
    if axis.resized == 1:
        return np.zeros_like(places)
    return places * (axis.length - 1) / (axis.resized - 1)


def _crop(axis: Resampling, places: Array) -> Array:
    last = axis.length - 1
    if axis.resized == 1:
        return np.full_like(places, axis.start * last + (axis.end - axis.start) * last / 2)
    return axis.start * last + places * (axis.end - axis.start) * last / (axis.resized - 1)


COORDINATES: Mapping[str, _Coordinates] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_crop_and_resize": _crop,
}

NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
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
    if mode == "nearest":
        indices = NEAREST[rounding](places)[:, None]
        weights = np.ones_like(indices)
    else:
        reach = 1 if mode == "linear" else 2
        scale = min(float(axis.scale), 1.0) if is_antialiased else 1.0
        half = -int(np.floor(-reach / scale))
        first = np.ceil(places) - half
        indices = first[:, None] + np.arange(2 * half)
        distances = np.abs(indices - places[:, None]) * scale
        weights = _linear(distances) if mode == "linear" else _cubic(distances, cubic)
        if excludes_outside:
            weights = np.where((indices < 0) | (indices >= axis.length), 0.0, weights)
        if is_antialiased or excludes_outside:
            weights = weights / weights.sum(axis=1, keepdims=True)
    offsets = np.zeros(axis.count, dtype)
    if axis.coordinates == "tf_crop_and_resize":
        is_outside = (places < 0) | (places > axis.length - 1)
        weights = np.where(is_outside[:, None], 0.0, weights)
        offsets[is_outside] = outside
    return WeightedIndices(_clamped(indices, axis), weights.astype(dtype), offsets)


def _linear(distances: Array) -> Array:
    return np.asarray(np.clip(1 - distances, 0, 1))


def _cubic(distances: Array, a: float) -> Array:
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((distances - 5) * distances + 8) * distances * a - 4 * a
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0.0))


def _clamped(indices: Array, axis: Resampling) -> Array:
    return np.asarray(np.clip(indices, 0, axis.length - 1), np.int32)
