"""Resize, one axis after the other, the ones that get shorter first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import Node
from ...type_inference.families.resized_lengths import resized_by_scales, resized_to_sizes
from ..lists import numbers_of
from ..plain_operators import Array, plain
from .resampling import (
    COORDINATES,
    NEAREST,
    Resampling,
    WeightedIndices,
    linear_pairs,
    nearest_indices,
    weighted_indices,
)

__all__ = ["find_unknown_setting", "resize", "scales_of_sizes"]

_KNOWN = {
    "mode": ("nearest", "linear", "cubic"),
    "coordinate_transformation_mode": tuple(COORDINATES),
    "nearest_mode": tuple(NEAREST),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}


def find_unknown_setting(node: Node) -> str | None:
    """Return which attribute has a value, or company, that there is no meaning for, or None."""
    for name, known in _KNOWN.items():
        text = node.text(name, known[0])
        if text not in known:
            return f"Resize has {name} in {list(known)}, not {text!r}"
    if node.text("mode", "nearest") == "nearest" and node.attributes.get("antialias"):
        return "nearest neighbours have no antialiasing"
    return None


# onnx.reference asks all axes anew for each element of the result, computes in float64 also what is
# only repeated, and rounds lengths down of products that are float32 in ONNX's own inference.
@plain(
    "Resize",
    since=11,
    later={"antialias": 18, "axes": 18, "keep_aspect_ratio_policy": 18},
    accepts=lambda node: find_unknown_setting(node) is None,
)
def resize(
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Change the lengths of axes, all by default; gives the type of x.

    roi: (2A,) for A axes, scales: (A,) float32, sizes: (A,) int64; one of the last two is given.
    Raises ValueError or MemoryError for a result that no memory holds.
    Interpolates in float64. Of integers, what is linear without antialiasing is cut towards zero;
    the rest is rounded after each axis, and computed in float32 if they have more than 8 bits.
    """
    order = [axis % x.ndim for axis in (axes or range(x.ndim))]
    lengths = tuple(x.shape[axis] for axis in order)
    counts, factors = _lengths(lengths, scales, sizes, keep_aspect_ratio_policy)
    part = [0.0] * len(order) + [1.0] * len(order)
    if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None and roi.size:
        if roi.size != len(part):
            raise ValueError(f"tf_crop_and_resize needs a roi of {len(part)} numbers")
        part = numbers_of(roi, may_be_one=True)
    wanted = list(x.shape)
    for axis, count in zip(order, counts, strict=True):
        wanted[axis] = count
    if 0 in wanted or not x.size:
        return np.zeros(wanted, x.dtype)
    if wanted == list(x.shape):
        return x
    np.empty(
        wanted, x.dtype
    )  # raises for what is too large before tables as long as an axis are made
    resamplings = {
        axis: Resampling(
            *(lengths[index], counts[index], factors[index], coordinate_transformation_mode),
            *(part[index], part[index + len(order)]),
        )
        for index, axis in enumerate(order)
    }
    outside = _as_type(np.asarray(extrapolation_value), x.dtype)
    if mode == "nearest":
        return _repeated(x, resamplings, nearest_mode, outside)
    if mode == "linear" and x.dtype.kind in "iu" and not antialias:
        return _cut(x, resamplings, outside)
    is_wide_integer = x.dtype.kind in "iu" and x.dtype.itemsize > 1
    weighted = {
        axis: weighted_indices(
            resampling,
            mode,
            cubic=cubic_coeff_a,
            is_antialiased=bool(antialias),
            excludes_outside=bool(exclude_outside),
            outside=float(outside),
            dtype=np.float32 if is_wide_integer else np.float64,
        )
        for axis, resampling in resamplings.items()
    }
    changed = {a: item for a, item in weighted.items() if not item.is_identity(x.shape[a])}
    if x.dtype.kind in "iu":
        return _rounded_by_axis(x, changed)
    made = x.astype(np.float64)
    for axis in _shrinking_first(resamplings, changed):
        made = _mix(made, weighted[axis], axis)
    return made.astype(x.dtype)


def _lengths(
    lengths: tuple[int, ...], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[int], list[np.float32]]:
    """Return the length of each resized axis, and its scale."""
    by_scale, by_size = (
        [] if given is None else numbers_of(given, may_be_one=True) for given in (scales, sizes)
    )
    is_neither = scales is None and sizes is None
    if is_neither or sorted((len(by_scale), len(by_size))) != [0, len(lengths)]:
        raise ValueError(
            f"{len(by_scale)} scales and {len(by_size)} sizes are given for {len(lengths)} axes; "
            f"one of them is wanted for each axis"
        )
    if by_scale:
        found, factors = resized_by_scales(lengths, by_scale), [np.float32(f) for f in by_scale]
    else:
        found = resized_to_sizes(lengths, tuple(by_size), policy)
        factors = scales_of_sizes(lengths, by_size, policy)
    counts = [count for count in found if isinstance(count, int)]
    if len(counts) != len(lengths):
        raise ValueError(f"lengths {list(lengths)} cannot be resized by {by_scale or by_size}")
    return counts, factors


def scales_of_sizes(lengths: Sequence[int], sizes: Sequence[int], policy: str) -> list[np.float32]:
    """Return the scale that each size stands for, or the one that keeps the proportions."""
    scales = [
        np.float32(size) / np.float32(length) if length else np.float32(1)
        for size, length in zip(sizes, lengths, strict=True)
    ]
    if policy == "stretch":
        return scales
    return [min(scales) if policy == "not_larger" else max(scales)] * len(scales)


def _shrinking_first(
    axes: Mapping[int, Resampling], chosen: Iterable[int] | None = None
) -> list[int]:
    """Order axes, or those chosen, so that nothing gets larger on its way than at its ends."""
    return sorted(
        axes if chosen is None else chosen,
        key=lambda axis: (axis in axes and axes[axis].count > axes[axis].length, -axis),
    )


def _repeated(x: Array, axes: Mapping[int, Resampling], rounding: str, outside: Array) -> Array:
    """Repeat elements, whatever their type; ``outside`` stands where there are none."""
    made = x
    for axis in _shrinking_first(axes):
        made = np.take(made, nearest_indices(axes[axis], rounding), axis)
    return _with_outside(made, axes, outside)


def _cut(x: Array, axes: Mapping[int, Resampling], outside: Array) -> Array:
    """Interpolate integers linearly and cut the fraction off, as onnxruntime does.

    A cut shows how a sum was rounded. So the corners around a place are added up in its order, in
    float32, with those axes of a picture that keep their lengths; in float64 for integers of 64
    bits, which it does not take. Channels-last pictures of 8 bits have weights of 10 bits there.
    """
    number: type[np.number[Any]] = np.float64 if x.dtype.itemsize > 4 else np.float32
    changed = {axis for axis, item in axes.items() if item.scale != 1}
    is_channels_last = x.ndim == 4 and 1 in changed and 3 not in changed
    area = range(1, 3) if is_channels_last else range(2 if x.ndim > 3 else 0, x.ndim)
    is_fixed = is_channels_last and x.dtype.itemsize == 1
    pairs = {
        axis: linear_pairs(axes.get(axis) or _kept(x.shape[axis]), in_10_bits=is_fixed)
        for axis in sorted(changed | set(area))
    }
    if is_fixed:
        number = np.int32
    lengths = [axes[axis].count if axis in axes else n for axis, n in enumerate(x.shape)]
    total, product = np.zeros(lengths, number), np.empty(lengths, number)
    for corner in itertools.product((0, 1), repeat=len(pairs)):
        taken, weight = x, np.ones((), number)
        sides = dict(zip(pairs, corner, strict=True))
        for axis in _shrinking_first(axes, pairs):
            taken = np.take(taken, pairs[axis].indices[:, sides[axis]], axis)
        for axis in reversed(pairs):
            weights = pairs[axis].weights[:, sides[axis]].astype(number)
            weight = weight * _along(weights, axis, x.ndim)
        np.multiply(weight, taken, out=product, dtype=number, casting="unsafe")
        total += product
    if is_fixed:
        total = (total + ((total >> 31) & (2**20 - 1))) >> 20
    is_short = x.dtype.itemsize == 1  # whose sums stay in the bounds
    made = total.astype(x.dtype) if is_short else _as_type(total, x.dtype)
    return _with_outside(made, axes, outside)


def _kept(length: int) -> Resampling:
    return Resampling(length, length, np.float32(1))


def _with_outside(made: Array, axes: Mapping[int, Resampling], outside: Array) -> Array:
    for axis, resampling in axes.items():
        is_outside = resampling.outside()
        if is_outside.any():
            made = np.where(_along(is_outside, axis, made.ndim), outside, made)
    return made


def _rounded_by_axis(x: Array, weighted: Mapping[int, WeightedIndices]) -> Array:
    """Mix integers, from the last axis on, each time rounded and kept in the bounds of the type.

    Weights of 8-bit types are multiples of 2^-22, as onnxruntime and Pillow have them, and sums of
    other types are of float32, as onnxruntime has these.
    """
    made = x
    for axis in sorted(weighted, reverse=True):
        item = weighted[axis]
        if x.dtype.itemsize == 1:
            item = replace(item, weights=np.round(item.weights * 2**22) / 2**22)
        mixed = _mix(made.astype(item.weights.dtype), item, axis)
        made = _as_type(_rounded(mixed).astype(np.float64), x.dtype)
    return made


def _rounded(x: Array) -> Array:
    """Round halves away from zero."""
    return np.asarray(np.trunc(x + np.copysign(0.5, x)))


def _mix(x: Array, weighted: WeightedIndices, axis: int) -> Array:
    """Add up the elements that each element of the resized axis is made of."""
    total = _along(weighted.offsets, axis, x.ndim)
    for indices, weights in zip(weighted.indices.T, weighted.weights.T, strict=True):
        total = total + np.take(x, indices, axis) * _along(weights, axis, x.ndim)
    return np.asarray(total)


def _along(numbers: Array, axis: int, rank: int) -> Array:
    """Let a list lie along one axis of this many."""
    return numbers.reshape([-1 if index == axis else 1 for index in range(rank)])


def _as_type(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert numbers; what no integer of the type is becomes the nearest one towards zero."""
    if dtype.kind not in "iu":
        return x.astype(dtype)
    bounds = np.iinfo(dtype)
    return np.asarray(np.clip(np.trunc(x), bounds.min, bounds.max).astype(dtype))
