"""Types of what is as long as the data makes it."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..dims import axis_of
from ..operands import operand, require_rank, require_type
from ..rules import type_rule

Types = Sequence[TensorType] | None


@type_rule("NonZero")
def _non_zero(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    return None if x is None else (TensorType(DType.INT64, (len(x.shape), None)),)


@type_rule("NonMaxSuppression")
def _non_max_suppression(node: Node, contents: ShapeContent) -> Types:
    for index, what in enumerate(("boxes", "scores")):
        given = operand(node, index)
        if given is not None:
            require_rank(what, given, 3)
            require_type(what, given, (DType.FLOAT32,))
    return (TensorType(DType.INT64, (None, 3)),)


@type_rule("Compress")
def _compress(node: Node, contents: ShapeContent) -> Types:
    x, condition = operand(node, 0), operand(node, 1)
    if x is None:
        return None
    if condition is not None:
        require_type("the condition", condition, (DType.BOOL,))
        require_rank("the condition", condition, 1)
    if "axis" not in node.attributes:
        return (TensorType(x.dtype, (None,)),)
    axis = axis_of(node.attributes["axis"], len(x.shape))
    return (TensorType(x.dtype, (*x.shape[:axis], None, *x.shape[axis + 1 :])),)


@type_rule("Unique")
def _unique(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None:
        return None
    shape: tuple[int | str | None, ...] = (None,)
    if "axis" in node.attributes:
        axis = axis_of(node.attributes["axis"], len(x.shape))
        shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
    places = TensorType(DType.INT64, (None,))
    return (TensorType(x.dtype, shape), places, places, places)[: len(node.outputs)]
