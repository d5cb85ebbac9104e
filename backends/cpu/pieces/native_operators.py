"""Operators between pieces that native code computes, where numpy would be far slower."""

from __future__ import annotations

import functools

import numpy as np

from ....runtime.graph import Node
from ....runtime.operators import Operator, as_operator
from ....runtime.operators.images.box_suppression import keep, select_boxes
from ..native.step_runner import StepRunner
from .stepped_nodes import STANDARD_DOMAINS

__all__ = ["find_native"]

Array = np.ndarray


def find_native(node: Node, runner: StepRunner) -> Operator | None:
    """Return what computes a node natively, called as an operator on numpy arrays; or None."""
    if node.domain not in STANDARD_DOMAINS or node.op_type != "NonMaxSuppression":
        return None
    center_point_box = node.attributes.get("center_point_box", 0)
    return as_operator(
        functools.partial(select_boxes, functools.partial(_keep, runner)),
        {"center_point_box": center_point_box},
    )


def _keep(
    runner: StepRunner, corners: Array, order: Array, limit: int, most_overlap: np.floating
) -> Array:
    """Choose by the boxes' type: what is not float32 is left to numpy."""
    if corners.dtype != np.float32:
        return keep(corners, order, limit, most_overlap)
    return runner.suppress_boxes(corners, order, limit, most_overlap)
