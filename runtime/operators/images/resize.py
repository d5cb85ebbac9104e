"""Resize, one axis after the other, the ones that get shorter first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Node
from ...type_inference.families.resized_lengths import resized_by_scales, resized_to_sizes
from ..lists import numbers_of
from ..plain_operators import Array, plain
from .resampling import COORDINATES, NEAREST, Resampling, WeightedIndices, weighted_indices

__all__ = ["find_unknown_setting", "resize"]

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
    Interpolates in float64; integers are rounded, halves to even, and bounded.
    """
    order = [axis % x.ndim for axis in (axes or range(x.ndim))]
    lengths = tuple(x.shape[axis] for axis in order)
    counts, factors = _lengths(lengths, scales, sizes, keep_aspect_ratio_policy)
    is_cropping = coordinate_transformation_mode == "tf_crop_and_resize"
    part = [0.0] * len(order) + [1.0] * len(order)
    if is_cropping:
        if roi is None or roi.size != len(part):
            raise ValueError(f"tf_crop_and_resize needs a roi of {len(part)} numbers")
        part = numbers_of(roi, may_be_one=True)
    wanted = list(x.shape)
    for axis, count in zip(order, counts, strict=True):
        wanted[axis] = count
    if 0 in wanted or not x.size:
        return np.zeros(wanted, x.dtype)
    repeats = mode == "nearest" and not is_cropping
    made = x if repeats else x.astype(np.float64)
    for index in sorted(
        range(len(order)), key=lambda item: (counts[item] > lengths[item], -order[item])
    ):
        resampling = Resampling(
            lengths[index],
            counts[index],
            factors[index],
            coordinate_transformation_mode,
            part[index],
            part[index + len(order)],
        )
        weighted = weighted_indices(
            resampling,
            mode,
            rounding=nearest_mode,
            cubic=cubic_coeff_a,
            is_antialiased=bool(antialias),
            excludes_outside=bool(exclude_outside),
            outside=extrapolation_value,
            dtype=np.float64,
        )
        if weighted.is_identity(lengths[index]):
            continue
        if repeats:
            made = np.take(made, weighted.indices[:, 0], order[index])
        else:
            made = _mix(made, weighted, order[index])
    return made if repeats else _as_type(made, x.dtype)


def _lengths(
    lengths: tuple[int, ...], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[int], list[np.floating[Any]]]:
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
    factors: list[np.floating[Any]]
    if scales is not None and by_scale:
        found, factors = resized_by_scales(lengths, by_scale), list(scales.ravel())
    else:
        found = resized_to_sizes(lengths, tuple(by_size), policy)
        factors = [
            np.float64(size / length) if length else np.float64(1)
            for size, length in zip(by_size, lengths, strict=True)
        ]
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(factors)
    counts = [count for count in found if isinstance(count, int)]
    if len(counts) != len(lengths):
        raise ValueError(f"lengths {list(lengths)} cannot be resized by {by_scale or by_size}")
    return counts, factors


def _mix(x: Array, weighted: WeightedIndices, axis: int) -> Array:
    """Add up the elements that each element of the resized axis is made of."""
    shape = [-1 if index == axis else 1 for index in range(x.ndim)]
    total = weighted.offsets.reshape(shape)
    for indices, weights in zip(weighted.indices.T, weighted.weights.T, strict=True):
        total = total + np.take(x, indices, axis) * weights.reshape(shape)
    return np.asarray(total)


def _as_type(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind not in "iu":
        return x.astype(dtype)
    bounds = np.iinfo(dtype)
    return np.clip(np.round(x), bounds.min, bounds.max).astype(dtype)
