"""Comparisons, logic, and the choice between two tensors by a third."""

from __future__ import annotations

from collections.abc import Mapping

from .....runtime.graph import DType, Node, TensorType
from ...onednn.post_ops import PostOp
from ...plans.plan_builder import PlanBuilder
from ..registry import FLOATS, INTEGERS, kernel
from .fused_elementwise import lower_elementwise, lower_where

__all__ = ["lower_comparison"]

_COMPARISONS: Mapping[str, str] = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
}
_LOGIC: Mapping[str, str] = {"And": "and", "Or": "or", "Xor": "xor"}
_TRUTH = frozenset({DType.BOOL})


@kernel(*_COMPARISONS, *_LOGIC, dtypes=FLOATS | INTEGERS | _TRUTH)
def lower_comparison(node: Node, builder: PlanBuilder) -> None:
    """Lower a comparison, or logic on truth values; NaN equals nothing and has no order."""
    left, right = node.inputs
    assert left is not None
    assert right is not None
    name = _COMPARISONS.get(node.op_type) or _LOGIC[node.op_type]
    kernel_name = "float_elementwise" if builder.dtype(left) in FLOATS else "integer_elementwise"
    steps = [PostOp(name, operand=1)]
    lower_elementwise(builder, [left, right], node.outputs[0], steps, kernel=kernel_name)


@kernel("Not", dtypes=_TRUTH)
def lower_not(node: Node, builder: PlanBuilder) -> None:
    """Lower the negation of truth values."""
    (source,) = node.inputs
    assert source is not None
    lower_elementwise(
        builder, [source], node.outputs[0], [PostOp("not")], kernel="integer_elementwise"
    )


def _refuses_choices(node: Node) -> str | None:
    for value in node.inputs[1:]:
        kind = None if value is None else value.type
        if not isinstance(kind, TensorType):
            continue
        if kind.dtype is DType.STRING or kind.dtype.item_bytes > 8:
            return f"CPU has Where for elements of up to 8 bytes, not for {kind.dtype.label}"
    return None


@kernel("Where", dtypes=_TRUTH, refuses=_refuses_choices)
def lower_choice(node: Node, builder: PlanBuilder) -> None:
    """Lower the choice of x where a condition is true, else of y; of any type that is no text."""
    condition, x, y = node.inputs
    assert condition is not None
    assert x is not None
    assert y is not None
    lower_where(builder, condition, [x, y], node.outputs[0])
