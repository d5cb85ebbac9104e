"""Where the largest or smallest elements along an axis are."""

from __future__ import annotations

import math

from .....runtime.graph import DType, Node
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..numpy_operators import lower_by_numpy
from ..registry import FLOATS, INTEGERS, kernel

__all__ = ["lower_position", "lower_top"]


@kernel("ArgMax", "ArgMin", dtypes=FLOATS | INTEGERS)
def lower_position(node: Node, builder: PlanBuilder) -> None:
    """Lower a search for the largest or smallest element along one axis; of integers by numpy."""
    source, (result,) = node.inputs[0], node.outputs
    assert source is not None
    shape = builder.shape(source)
    axis = builder.axis(int(node.attributes.get("axis", 0)), len(shape))
    outer, length, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if builder.dtype(source) not in FLOATS or not length:
        lower_by_numpy(node, builder)
        return
    builder.expect_count(result, outer * inner)
    operand = builder.plain(source, DType.FLOAT32)
    made = builder.result(result, Layout.plain(builder.shape(result), DType.INT64))
    wants = (node.op_type == "ArgMax", bool(node.attributes.get("select_last_index", 0)))
    if outer * inner:
        builder.native("find_extremes", (operand, made), (outer, length, inner, *map(int, wants)))


@kernel("TopK", dtypes=FLOATS | INTEGERS, constant_inputs=(1,))
def lower_top(node: Node, builder: PlanBuilder) -> None:
    """Lower a search for the k largest or smallest elements along one axis; of integers by numpy.

    They are in order, whether that is asked for or not.
    """
    source = node.inputs[0]
    assert source is not None
    if builder.dtype(source) not in FLOATS:
        lower_by_numpy(node, builder)
        return
    shape = builder.shape(source)
    axis = builder.axis(int(node.attributes.get("axis", -1)), len(shape))
    (count,) = node.integers_at(1) or (0,)
    if not 0 <= count <= shape[axis]:
        raise builder.contradiction(f"it keeps {count} elements of {shape[axis]}")
    kept = (*shape[:axis], count, *shape[axis + 1 :])
    operand = builder.plain(source, DType.FLOAT32)
    made = []
    for value, dtype in zip(node.outputs, (DType.FLOAT32, DType.INT64), strict=True):
        builder.expect_shape(value, kept)
        made.append(builder.result(value, Layout.plain(kept, dtype)))
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    wants_largest = int(node.attributes.get("largest", 1) != 0)
    if math.prod(kept):
        parameters = (outer, shape[axis], inner, count, wants_largest)
        builder.native("select_top", (operand, *made), parameters)
