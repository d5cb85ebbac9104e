"""Operators that put elements in another order."""

from __future__ import annotations

from ....runtime.graph import Node
from ..plan_builder import PlanBuilder
from ..strided_copy import strided_copy
from ..walk import row_major
from .registry import kernel


@kernel("Transpose", dtypes=None)
def lower_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a permutation of axes; a view where only axes of length 1 move."""
    (source,) = node.inputs
    assert source is not None
    (result,) = node.outputs
    operand = builder.operand(source)
    rank = len(operand.shape)
    permutation = [int(axis) for axis in node.attributes.get("perm") or range(rank)[::-1]]
    long_axes = [axis for axis in permutation if operand.shape[axis] != 1]
    if long_axes == sorted(long_axes):
        builder.define(result, operand.viewed(builder.shape(result)))
        return
    made = builder.result(result)
    strides = row_major(operand.shape)
    strided_copy(builder, operand, made, made.shape, [strides[axis] for axis in permutation])
