"""Operators that change the shape and not one element: views of the same memory."""

from __future__ import annotations

from ....runtime.graph import Node
from ..plan_builder import PlanBuilder
from .registry import kernel


@kernel("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", dtypes=None, constant_inputs=(1,))
def lower_view(node: Node, builder: PlanBuilder) -> None:
    """Lower what keeps the elements in their row-major order."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    builder.define(result, builder.view(builder.operand(source), builder.shape(result)))
