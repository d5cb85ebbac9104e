"""What a Resize node says about each axis that it resizes. Pure; needs the shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import GraphError
from ..graph import Node
from ..operators.images.resampling import (
    Resampling,
    WeightedIndices,
    nearest_indices,
    weighted_indices,
)
from ..operators.images.resize import find_unknown_setting, scales_of_sizes

__all__ = [
    "find_unknown_setting",
    "indices_of",
    "is_repeating",
    "resamplings",
    "weighted_indices_of",
]

Array = np.ndarray[Any, Any]

_DEFAULTS = {
    "coordinate_transformation_mode": "half_pixel",
    "keep_aspect_ratio_policy": "stretch",
    "mode": "nearest",
    "nearest_mode": "round_prefer_floor",
}


def is_repeating(node: Node) -> bool:
    """True if elements are repeated as they are, whatever their type; else they are joined."""
    return _mode_of(node) == "nearest" and not _is_cropping(node)


def resamplings(node: Node, shape: Sequence[int], wanted: Sequence[int]) -> dict[int, Resampling]:
    """Return for each axis that the node names how it is resized.

    Raises GraphError for axes that there are not, lists of other lengths, numbers that are no
    scales, sizes or places, and for results of other lengths than they make. What keeps all lengths
    resizes nothing, whatever its scales.
    """
    rank = len(shape)
    named = [int(axis) for axis in node.attributes.get("axes") or range(rank)]
    if len(wanted) != rank or any(not -rank <= axis < rank for axis in named):
        raise _contradiction(node, f"axes {named}, from {list(shape)} to {list(wanted)}")
    axes = [axis % rank for axis in named]
    _check_numbers(node, len(axes))
    scales = _scales(node, [shape[axis] for axis in axes])
    for axis in range(rank):
        scale = float(scales[axes.index(axis)]) if axis in axes else 1.0
        made = scale * shape[axis]
        if shape[axis] and not made - 1.01 <= wanted[axis] <= max(1.0, made + 0.51):
            raise _contradiction(
                node, f"a scale of {scale:g} of {shape[axis]} elements, for {wanted[axis]}"
            )
    if list(shape) == list(wanted):
        return {}
    coordinates = _text(node, "coordinate_transformation_mode")
    found = {
        axis: Resampling(shape[axis], wanted[axis], scale, coordinates)
        for axis, scale in zip(axes, scales, strict=True)
    }
    roi = _numbers(node, 1)
    if _is_cropping(node) and roi is not None:
        for index, axis in enumerate(axes):
            start, end = float(roi[index]), float(roi[len(axes) + index])
            found[axis] = replace(found[axis], start=start, end=end)
    return found


def _check_numbers(node: Node, count: int) -> None:
    roi, scales, sizes = (_numbers(node, index) for index in (1, 2, 3))
    for name, given in (("scales", scales), ("sizes", sizes)):
        if given is not None and (
            len(given) != count or not (np.isfinite(given) & (given > 0)).all()
        ):
            raise _contradiction(node, f"{name} {given.tolist()} for {count} axes")
    if (scales is None) == (sizes is None):
        raise _contradiction(node, "either scales or sizes")
    is_bad = roi is not None and (len(roi) != 2 * count or not np.isfinite(roi).all())
    if _is_cropping(node) and is_bad:
        raise _contradiction(node, f"a roi of {[] if roi is None else roi.tolist()}")


def _contradiction(node: Node, text: str) -> GraphError:
    return GraphError(f"{node.op} (node {node.name!r}) cannot have {text}")


def indices_of(node: Node, axis: Resampling) -> Array:
    """Return the element that each element of the resized axis repeats, in mode nearest; int32."""
    return nearest_indices(axis, _text(node, "nearest_mode"))


def weighted_indices_of(node: Node, axis: Resampling) -> WeightedIndices:
    """Return the elements and weights of each element of the resized axis, in any mode."""
    return weighted_indices(
        axis,
        _mode_of(node),
        rounding=_text(node, "nearest_mode"),
        cubic=float(node.attributes.get("cubic_coeff_a", -0.75)),
        is_antialiased=bool(node.attributes.get("antialias", 0)),
        excludes_outside=bool(node.attributes.get("exclude_outside", 0)),
        outside=float(node.attributes.get("extrapolation_value", 0.0)),
    )


def _scales(node: Node, lengths: Sequence[int]) -> list[np.float32]:
    given, sizes = _numbers(node, 2), _numbers(node, 3)
    if given is not None:
        return [np.float32(scale) for scale in given]
    wanted = [] if sizes is None else sizes.tolist()
    return scales_of_sizes(lengths, wanted, _text(node, "keep_aspect_ratio_policy"))


def _mode_of(node: Node) -> str:
    return _text(node, "mode")


def _is_cropping(node: Node) -> bool:
    """True if it resizes a part that may reach beyond the input, where a number stands."""
    return _text(node, "coordinate_transformation_mode") == "tf_crop_and_resize"


def _text(node: Node, name: str) -> str:
    return node.text(name, _DEFAULTS[name])


def _numbers(node: Node, index: int) -> Array | None:
    """Read a constant input; None for one that is not given or empty."""
    value = node.input_at(index)
    if value is None or value.constant is None or not value.constant.size:
        return None
    return value.constant.reshape(-1)
