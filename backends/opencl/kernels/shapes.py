"""Operators whose results shapes alone determine: constants of the plan.

Most of these fold when a plan is specialised; what is left over is what is too large to be folded,
or the result of a network that does nothing else.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.graph import Node
from ..plan_builder import PlanBuilder
from .registry import kernel


@kernel("Shape", dtypes=None)
def lower_shape(node: Node, builder: PlanBuilder) -> None:
    """Lower the lengths of a value, or those of some axes."""
    source = node.inputs[0]
    assert source is not None
    lengths = builder.shape(source)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(lengths))
    _define(node, builder, np.array(lengths[start:end], np.int64))


@kernel("Size", dtypes=None)
def lower_size(node: Node, builder: PlanBuilder) -> None:
    """Lower the number of elements of a value."""
    source = node.inputs[0]
    assert source is not None
    _define(node, builder, np.array(math.prod(builder.shape(source)), np.int64))


@kernel("Range", dtypes=None, constant_inputs=(0, 1, 2))
def lower_range(node: Node, builder: PlanBuilder) -> None:
    """Lower a row of numbers."""
    start, _, step = (builder.constant(value) for value in node.inputs)
    assert start is not None
    assert step is not None
    (count,) = builder.shape(node.outputs[0])
    _define(node, builder, (start + np.arange(count) * step).astype(start.dtype))


@kernel("ConstantOfShape", dtypes=None, constant_inputs=(0,))
def lower_constant_of_shape(node: Node, builder: PlanBuilder) -> None:
    """Lower a tensor of equal elements."""
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)
    _define(node, builder, np.full(builder.shape(node.outputs[0]), value[0], value.dtype))


def _define(node: Node, builder: PlanBuilder, array: np.ndarray[Any, Any]) -> None:
    builder.define(node.outputs[0], builder.constant_operand(array))
