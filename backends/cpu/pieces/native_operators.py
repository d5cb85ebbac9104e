"""Operators between pieces that native code computes, where numpy would be far slower."""

from __future__ import annotations

import functools
import math

import numpy as np

from ....runtime.graph import Node
from ....runtime.operators import Operator, as_operator
from ....runtime.operators.images.box_suppression import by_score, keep, select_boxes
from ....runtime.operators.own.own_operators import kept_count, top_k
from ..native.step_runner import StepRunner
from .stepped_nodes import STANDARD_DOMAINS

__all__ = ["find_native"]

Array = np.ndarray


def find_native(node: Node, runner: StepRunner) -> Operator | None:
    """Return what computes a node natively, called as an operator on numpy arrays; or None."""
    if node.domain not in STANDARD_DOMAINS:
        return None
    if node.op_type == "NonMaxSuppression":
        function = functools.partial(
            select_boxes,
            functools.partial(_by_score, runner),
            functools.partial(_keep, runner),
            center_point_box=node.attributes.get("center_point_box", 0),
        )
        return as_operator(function, {})
    if node.op_type == "TopK" and len(node.inputs) == 2:
        axis, falls = node.attributes.get("axis", -1), node.attributes.get("largest", 1) != 0
        return functools.partial(_top, runner, axis, falls)
    return None


def _by_score(runner: StepRunner, scores: Array, least_score: np.floating | None) -> Array:
    """Order by the scores' type: what is not float32 is left to numpy."""
    if scores.dtype != np.float32 or (least_score is not None and np.isnan(least_score)):
        return by_score(scores, least_score)
    above = math.nan if least_score is None else float(least_score)
    return runner.order_floats(scores, scores.size, falls=True, nan_last=True, above=above)


def _keep(
    runner: StepRunner, corners: Array, order: Array, limit: int, most_overlap: np.floating
) -> Array:
    """Choose by the boxes' type: what is not float32 is left to numpy."""
    if corners.dtype != np.float32:
        return keep(corners, order, limit, most_overlap)
    return runner.suppress_boxes(corners, order, limit, most_overlap)


def _top(runner: StepRunner, axis: int, falls: bool, x: Array, k: Array) -> tuple[Array, Array]:
    """Keep what is first along the last axis; other axes and types are left to numpy."""
    if x.dtype != np.float32 or axis not in (-1, x.ndim - 1):
        return top_k(x, k, axis=axis, largest=int(falls))
    count = kept_count(x, k, axis)
    rows = x if x.ndim == 1 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    places = runner.order_floats(rows, count, falls=falls, nan_last=not falls)
    if x.ndim == 1:
        return x.take(places), places
    places = places.reshape(*x.shape[:-1], count)
    return np.take_along_axis(x, places, -1), places
