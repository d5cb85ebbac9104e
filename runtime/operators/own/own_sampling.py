"""Sampling between the elements of an image, for which onnx.reference steps from point to point."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["affine_grid", "grid_sample"]

_SHARPNESS = -0.75
_REACH = 3
"""A point that is further outside than this has no neighbour inside."""

_Neighbour = tuple[Array, Array | None]
"""Places along an axis of the padded image, and weights; None: the place itself is meant."""


@own("GridSample", since=16)
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """Interpolate between the neighbours of each point.

    x: (N, C, *lengths). grid: (N, *points, axes) of places from -1 to 1, the last axis' first.
    Gives (N, C, *points) of x's type. Neighbours outside are zero, as at the border, or mirrored.
    A place that is NaN is the first edge, as in onnxruntime, and so is an infinite one that is
    mirrored. Source: for "cubic" Keys 1981, as PyTorch and onnxruntime have it. Raises ValueError
    for shapes that do not fit and for unknown modes.
    """
    axes = x.ndim - 2
    if axes < 1 or grid.ndim != x.ndim or len(grid) != len(x) or grid.shape[-1] != axes:
        raise ValueError(
            f"x is {x.shape} and grid {grid.shape}; (N, C, *lengths) and (N, *points, axes) are "
            f"wanted"
        )
    if mode not in _NEIGHBOURS:
        raise ValueError(f"mode is {mode!r}; it may be {', '.join(_NEIGHBOURS)}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"padding_mode is {padding_mode!r}; it may be zeros, border, reflection")
    points = grid.astype(np.result_type(grid.dtype, np.float32), copy=False)
    images = np.moveaxis(x, 1, 0)
    if padding_mode == "zeros":
        outside = "" if x.dtype == object else 0
        images = np.pad(images, [(0, 0)] * 2 + [(1, 1)] * axes, constant_values=outside)
    if not _is_nearest(mode):
        images = images.astype(np.result_type(x.dtype, np.float32), copy=False)
    flat = images.reshape(len(images), math.prod(images.shape[1:]))
    point_count = math.prod(grid.shape[1:-1])
    with np.errstate(all="ignore"):
        neighbours = [
            _along(
                points[..., axes - 1 - axis].reshape(len(x), point_count),
                x.shape[2 + axis],
                mode,
                padding_mode,
                aligned=bool(align_corners),
            )
            for axis in range(axes)
        ]
        found = _mixed(flat, np.arange(len(x))[:, None], neighbours, images.shape[2:])
    made = found.reshape(len(images), len(x), *grid.shape[1:-1])
    return np.moveaxis(made, 0, 1).astype(x.dtype, order="C")


def _is_nearest(mode: str) -> bool:
    return _NEIGHBOURS[mode] is _nearest


def _mixed(
    flat: Array, before: Array, neighbours: Sequence[list[_Neighbour]], lengths: Sequence[int]
) -> Array:
    """Mix the neighbours along the first axis of what the later axes give: (C, points).

    flat: (C, images * elements). before: where the axes so far have led, (images, points).
    """
    if not neighbours:
        return flat.take(before.reshape(-1), axis=1)
    total: Array | None = None
    for place, weight in neighbours[0]:
        part = _mixed(flat, before * lengths[0] + place, neighbours[1:], lengths[1:])
        if weight is not None:
            part = np.multiply(part, weight.reshape(-1).astype(part.dtype, copy=False), out=part)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _along(
    points: Array, length: int, mode: str, padding_mode: str, *, aligned: bool
) -> list[_Neighbour]:
    """Return the neighbours of each point along an axis.

    Zeros outside are elements that the image has been padded with.
    """
    if aligned:
        places = (points + 1) / 2 * (length - 1)
    else:
        places = ((points + 1) * length - 1) / 2
    is_nowhere = ~np.isfinite(places) if padding_mode == "reflection" else np.isnan(places)
    places = np.where(is_nowhere, places.dtype.type(0 if aligned else -0.5), places)
    inside: Callable[[Array], Array]
    if padding_mode == "reflection":
        inside = functools.partial(_mirrored, length=length, aligned=aligned)
        if not _is_nearest(mode):
            places = _reflected(places, length, aligned=aligned)
    else:
        places = np.clip(places, -_REACH, length - 1 + _REACH)
        padding = 1 if padding_mode == "zeros" else 0
        inside = functools.partial(_clipped, length=length, padding=padding)
    return [(inside(whole), weight) for whole, weight in _NEIGHBOURS[mode](places)]


def _nearest(places: Array) -> list[_Neighbour]:
    return [(np.rint(places), None)]


def _linear(places: Array) -> list[_Neighbour]:
    first = np.floor(places)
    share = places - first
    return [(first, 1 - share), (first + 1, share)]


def _cubic(places: Array) -> list[_Neighbour]:
    first = np.floor(places)
    share = places - first
    return [
        (first - 1, _far(1 + share)),
        (first, _near(share)),
        (first + 1, _near(1 - share)),
        (first + 2, _far(2 - share)),
    ]


def _near(d: Array) -> Array:
    a = _SHARPNESS
    return ((a + 2) * d - (a + 3)) * d * d + 1


def _far(d: Array) -> Array:
    a = _SHARPNESS
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


_NEIGHBOURS: dict[str, Callable[[Array], list[_Neighbour]]] = {
    "nearest": _nearest,
    "linear": _linear,
    "cubic": _cubic,
    "bilinear": _linear,
    "bicubic": _cubic,
}


def _clipped(whole: Array, *, length: int, padding: int) -> Array:
    return np.clip(whole, -padding, length - 1 + padding).astype(np.intp) + padding


def _mirrored(whole: Array, *, length: int, aligned: bool) -> Array:
    """Fold whole numbers at the border elements (aligned), or at the edges of these."""
    period = max(2 * (length - 1), 1) if aligned else 2 * length
    folded = np.mod(whole, period).astype(np.intp)
    return np.minimum(folded, (period if aligned else period - 1) - folded)


def _reflected(places: Array, length: int, *, aligned: bool) -> Array:
    """Fold places that are outside, and keep the others as they are."""
    low, span = (0.0, length - 1) if aligned else (-0.5, length)
    if not span:
        return np.zeros_like(places)
    folded = np.mod(places - low, 2 * span)
    folded = low + np.minimum(folded, 2 * span - folded)
    return np.where((places < low) | (places > low + span), folded, places)


# onnx.reference divides by zero for one point whose corners are aligned.
@own("AffineGrid", since=20)
def affine_grid(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """Place the points of images for GridSample: of theta's type.

    theta: (N, axes, axes + 1). size: (N, C, *lengths). Gives (N, *lengths, axes), the last axis'
    place first. One point whose corners are aligned lies at the end, 1, as in onnxruntime.
    """
    lengths = [int(length) for length in size[2:]]
    axes = len(lengths)
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1) or min(lengths) < 0:
        raise ValueError(f"theta is {theta.shape} for images of {size.tolist()}")
    number = np.result_type(theta.dtype, np.float32)
    places = [_spread(length, is_to_ends=bool(align_corners)) for length in lengths]
    grid = np.meshgrid(*places, indexing="ij")[::-1]
    points = np.stack([*grid, np.ones(lengths)], axis=-1).astype(number)
    made = points.reshape(-1, axes + 1) @ theta.astype(number).transpose(0, 2, 1)
    return np.asarray(made.reshape(len(theta), *lengths, axes).astype(theta.dtype))


def _spread(count: int, *, is_to_ends: bool) -> Array:
    """Spread points from -1 to 1, in the middles of as many parts or to both ends."""
    if not is_to_ends:
        return np.asarray((2 * np.arange(count) + 1) / max(count, 1) - 1)
    return np.linspace(-1, 1, count) if count != 1 else np.ones(1)
