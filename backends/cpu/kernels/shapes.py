"""Operators whose result shapes alone determine, and tensors made of nothing else.

Most of these fold when a plan is specialised; what is left over is what is too large to be folded,
or the result of a network that does nothing else.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node
from ..operand import Layout
from ..plan_builder import PlanBuilder
from .registry import kernel


@kernel("Shape", dtypes=None)
def lower_shape(node: Node, builder: PlanBuilder) -> None:
    """Lower the lengths of a value, or those of some axes: a constant of the plan."""
    source = node.inputs[0]
    assert source is not None
    lengths = builder.shape(source)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(lengths))
    _define(node, builder, np.array(lengths[start:end], np.int64))


@kernel("Size", dtypes=None)
def lower_size(node: Node, builder: PlanBuilder) -> None:
    """Lower the number of elements of a value: a constant of the plan."""
    source = node.inputs[0]
    assert source is not None
    _define(node, builder, np.array(math.prod(builder.shape(source)), np.int64))


@kernel("Range", dtypes=None, constant_inputs=(0, 1, 2))
def lower_range(node: Node, builder: PlanBuilder) -> None:
    """Lower a row of numbers: a constant of the plan."""
    start, _, step = (builder.constant(value) for value in node.inputs)
    assert start is not None
    assert step is not None
    (count,) = builder.shape(node.outputs[0])
    _define(node, builder, (start + np.arange(count) * step).astype(start.dtype))


@kernel("ConstantOfShape", dtypes=None, constant_inputs=(0,))
def lower_constant_of_shape(node: Node, builder: PlanBuilder) -> None:
    """Lower a tensor of equal elements: memory that is filled in each run."""
    (result,) = node.outputs
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32)))
    layout = Layout.plain(builder.shape(result), DType.of(value.dtype))
    made = builder.result(result, layout)
    if layout.count:
        item = layout.dtype.item_bytes
        builder.native("fill", (made,), (item, layout.count, word_of(value)))


def word_of(value: np.ndarray[Any, Any]) -> int:
    """Give the bytes of one element, in the low end of a signed 64-bit word."""
    data = value.reshape(-1)[:1].tobytes()
    return int.from_bytes(data.ljust(8, b"\0"), "little", signed=True)


def _define(node: Node, builder: PlanBuilder, array: np.ndarray[Any, Any]) -> None:
    builder.define(node.outputs[0], builder.constant_operand(array))
