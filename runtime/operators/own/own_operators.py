"""Operators that onnx.reference lacks, gets wrong, or implements so that threads may not share it.

Each is a function of the inputs, with the node's attributes as keywords; numpy only. They are plain
operators, too, and stand in for onnx.reference's where a node, such as one of an old opset, is not
surely right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...graph import DType
from ..indices.scattering import own_places
from ..lists import numbers_of
from ..plain_operators import Array, PlainFunction, Prepared, plain

__all__ = ["find_own", "kept_count", "own", "top_k"]

_SHORT_RUN = 512
"""Slices that are taken sooner than it is found out whether they are a run."""

_operators: dict[tuple[str, str], PlainFunction | Prepared] = {}


def find_own(domain: str, op_type: str) -> PlainFunction | Prepared | None:
    """Find the function for an operator, or None."""
    return _operators.get((domain, op_type))


def own(
    op_type: str,
    *,
    since: int,
    domain: str = "",
    later: Mapping[str, int] | None = None,
    further: Collection[str] = (),
    takes_output_count: bool = False,
    prepares: bool = False,
) -> Callable[[PlainFunction], PlainFunction]:
    """Register a function for an operator; see ``plain_operators.plain``."""

    def register(function: PlainFunction) -> PlainFunction:
        _operators[domain, op_type] = Prepared(function) if prepares else function
        return plain(
            op_type,
            since=since,
            domain=domain,
            later=later,
            further=further,
            takes_output_count=takes_output_count,
            prepares=prepares,
        )(function)

    return register


@own("Constant", since=12)
def constant(
    *,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Array:
    """Return the one attribute that is there; read-only, for it is the node's own."""
    if value is not None:
        view = np.asarray(value).view()
        view.flags.writeable = False
        return view
    choices: list[tuple[Any, type]] = [
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ]
    for given, dtype in choices:
        if given is not None:
            return np.array(given, dtype=dtype)
    raise ValueError("a Constant has no value")


# onnx.reference packs an optional into a list here, and does not unpack it there.
@own("Optional", since=15)
def optional(x: Any = None, *, type: Any = None) -> Any:
    """Return the element itself; an empty optional is None."""
    return x


@own("OptionalGetElement", since=15)
def optional_get_element(x: Any) -> Any:
    """Return the element; ValueError for an empty optional."""
    if x is None:
        raise ValueError("the optional is empty; ask OptionalHasElement first")
    return x


# onnx.reference gives shape (0,) for no indices, and fails on indices that are not contiguous.
@own("Gather", since=1)
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Take slices along an axis; negative indices count from its end.

    One is a view, and a run of them, too, unless it is short.
    """
    if indices.ndim == 0:
        place: tuple[Any, ...] = (slice(None),) * range(x.ndim)[axis] + (int(indices), ...)
        return np.asarray(x[place])
    places = indices.astype(np.intp, copy=False)
    if not x.size:  # of nothing numpy takes whatever is asked for
        np.zeros(x.shape[axis], np.bool_).take(places)
    if places.size < _SHORT_RUN:
        return x.take(places, axis)
    first = int(places.flat[0]) if places.size else 0
    if 0 <= first <= x.shape[axis] - places.size and _is_run(places, first):
        axis %= x.ndim
        part = x[(slice(None),) * axis + (slice(first, first + places.size),)]
        return part.reshape(x.shape[:axis] + places.shape + x.shape[axis + 1 :])
    return x.take(places, axis)


def _is_run(places: Array, first: int) -> bool:
    """True if they count up from the first one."""
    flat = places.reshape(-1)
    if flat.size and flat[-1] != first + flat.size - 1:
        return False
    return bool((flat == np.arange(first, first + flat.size)).all())


# onnx.reference compares wrong shapes for a negative axis, and takes at most 64 elements.
@own("GatherElements", since=11)
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Take an element for each index, which may be negative, along an axis."""
    axis %= x.ndim
    seen = [slice(None) if at == axis else slice(length) for at, length in enumerate(indices.shape)]
    return np.take_along_axis(x[tuple(seen)], own_places(indices), axis)


# onnx.reference multiplies with ones, which strings cannot.
@own("Expand", since=8)
def expand(x: Array, shape: Array) -> Array:
    """View in the shape to which x and ``shape`` broadcast; read-only."""
    wanted = numbers_of(shape)
    old = [1] * (len(wanted) - x.ndim) + list(x.shape)
    wanted = [1] * (len(old) - len(wanted)) + wanted
    # np.broadcast_shapes has a limit of 32 axes, half of what arrays may have.
    return np.broadcast_to(x, [a if b == 1 else b for a, b in zip(old, wanted, strict=True)])


@own("TopK", since=10, later={"largest": 11, "sorted": 11})
def top_k(
    x: Array, k: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """Keep the largest or smallest elements of an axis, in order, and their places.

    Of equals the first come first; NaN is larger than all. IndexError for a count that the axis has
    not.
    """
    count, length = kept_count(x, k, axis), x.shape[axis]
    if largest:
        backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = length - 1 - np.flip(backwards, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    places = np.take(order, np.arange(count), axis=axis).astype(np.int64)
    return np.take_along_axis(x, places, axis), places


def kept_count(x: Array, k: Array, axis: int) -> int:
    """Return how many elements of an axis are kept; the errors are those of ``top_k``."""
    if k.size != 1:
        raise ValueError(f"{k.size} counts of elements to keep are given, and one is wanted")
    count, length = int(k.item()), x.shape[axis]
    if not 0 <= count <= length:
        raise IndexError(f"{count} elements cannot be kept of the {length} along axis {axis}")
    return count


@own("GlobalLpPool", since=2)
def global_lp_pool(x: Array, *, p: int = 2) -> Array:
    """Take the p-norm over all spatial axes. x: (N, C, ...); gives (N, C, 1, ...)."""
    axes = tuple(range(2, x.ndim))
    total = np.sum(np.abs(x.astype(np.float64)) ** p, axis=axes, keepdims=True)
    return np.asarray(total ** (1.0 / p)).astype(x.dtype)


# onnx's converter leaves the scales of opset 18, one a group, as they are, and its function body of
# the newest opset takes one a channel only.
@own("GroupNormalization", since=18, later={"stash_type": 21})
def group_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = DType.FLOAT32.value,
) -> Array:
    """Normalize each group of channels. x: (N, C, ...); scale, bias: (C,), or one number a group.

    Statistics are computed in the type that ``stash_type`` names. Raises ValueError for channels
    or parameters that do not fit the groups.
    """
    channels = x.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"{channels} channels cannot be {num_groups} groups of the same size")
    lengths = {(channels,), (num_groups,)}
    if scale.shape not in lengths or bias.shape not in lengths:
        raise ValueError(
            f"scale has shape {scale.shape} and bias {bias.shape}; one number for each of "
            f"{channels} channels, or of {num_groups} groups, is wanted"
        )
    rows = x.reshape(len(x), num_groups, math.prod(x.shape[1:]) // num_groups)
    rows = rows.astype(DType(stash_type).numpy)
    if rows.shape[2]:
        rows -= rows.mean(axis=2, keepdims=True)
        rows /= np.sqrt(np.square(rows).mean(axis=2, keepdims=True) + np.float32(epsilon))
    normalized = rows.astype(x.dtype).reshape(len(x), channels, -1 if x.size else 0)
    factors, terms = (np.repeat(item, channels // len(item))[:, None] for item in (scale, bias))
    return np.asarray(normalized * factors + terms).reshape(x.shape)


@own("MaxRoiPool", since=1)
def max_roi_pool(
    x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Array:
    """Take the maximum in each cell of a grid laid over each region; an empty cell gives 0.

    x: (N, C, H, W). rois: (R, 5) of image index, x1, y1, x2, y2. Gives (R, C, *pooled_shape). A
    region that is not finite is zero. Raises IndexError for one of an image that is not there.
    Edges are computed in float32, as by the peers: in more digits some fall into another pixel.
    Source: region of interest pooling, Girshick 2015, arXiv:1504.08083.
    """
    rows, columns = pooled_shape
    out = np.zeros((len(rois), x.shape[1], rows, columns), x.dtype)
    scale = np.float32(spatial_scale)
    for region, roi in enumerate(rois):
        if not -1 < roi[0] < len(x):
            raise IndexError(f"region {region} is of image {roi[0]} of {len(x)}")
        if not np.isfinite(roi * scale).all():
            continue
        image = x[int(roi[0])]
        left, top, right, bottom = (_half_up(np.float32(edge) * scale) for edge in roi[1:])
        heights = _cells(top, bottom, rows, x.shape[2])
        widths = _cells(left, right, columns, x.shape[3])
        for row, (y1, y2) in enumerate(heights):
            for column, (x1, x2) in enumerate(widths):
                if y1 < y2 and x1 < x2:
                    out[region, :, row, column] = image[:, y1:y2, x1:x2].max(axis=(1, 2))
    return out


def _half_up(number: np.float32) -> int:
    return math.floor(abs(float(number)) + 0.5) * (1 if number >= 0 else -1)


def _cells(start: int, end: int, count: int, limit: int) -> list[tuple[int, int]]:
    size = np.float32(max(end - start + 1, 1)) / np.float32(count)
    steps = [np.float32(cell) * size for cell in range(count + 1)]
    edges = [(start + math.floor(low), start + math.ceil(high)) for low, high in pairwise(steps)]
    return [(min(max(low, 0), limit), min(max(high, 0), limit)) for low, high in edges]


@own("Multinomial", since=7)
def multinomial(
    logits: Array, *, sample_size: int = 1, seed: float | None = None, dtype: int = 6
) -> Array:
    """Draw class numbers with the probabilities softmax(logits).

    logits: (batch, classes). Gives (batch, sample_size). A seed fixes the draw.
    """
    generator = np.random.default_rng(None if seed is None else abs(hash(float(seed))))
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    edges = np.cumsum(shifted, axis=1)
    draws = generator.random((len(logits), sample_size)) * edges[:, -1:]
    classes = np.empty(draws.shape, DType(dtype).numpy)
    for row, (ends, drawn) in enumerate(zip(edges, draws, strict=True)):
        found = np.searchsorted(ends, drawn, side="right")
        classes[row] = np.minimum(found, logits.shape[1] - 1)
    return classes
