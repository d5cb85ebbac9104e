"""Softmax and LogSoftmax along any axis."""

from __future__ import annotations

import math

from .....runtime.graph import DType, Node
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..matrices.attention import ELEMENT_CODES
from ..registry import kernel


@kernel("Softmax", "LogSoftmax")
def lower_softmax(node: Node, builder: PlanBuilder) -> None:
    """Lower along one axis of a row-major tensor, in place where it may.

    Native: oneDNN takes twice as long along the last axis, and much longer along others.
    """
    (source,) = node.inputs
    (result,) = node.outputs
    assert source is not None
    shape = builder.shape(source)
    builder.expect_shape(result, shape)
    dtype = builder.operand(source).dtype
    dtype = dtype if dtype in ELEMENT_CODES else DType.FLOAT32
    operand = builder.plain(source, dtype)
    made = builder.result(result, Layout.plain(shape, dtype), over=operand)
    if not made.layout.count:
        return
    axis = builder.axis(int(node.attributes.get("axis", -1)), len(shape))
    lengths = (math.prod(shape[:axis]), math.prod(shape[axis : axis + 1]))
    inner = math.prod(shape[axis + 1 :])
    is_log = node.op_type == "LogSoftmax"
    parameters = (ELEMENT_CODES[dtype], *lengths, inner, is_log)
    builder.native("softmax", (operand, made), parameters)
