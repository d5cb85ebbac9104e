"""Types of what reduces axes to one element each."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Dim, DType, Node, Shape, TensorType
from ..content.shape_content import ShapeContent
from ..dims import axes_of, axis_of
from ..operands import integer, operand, require_rank, require_type
from ..rules import type_rule

Types = Sequence[TensorType] | None


@type_rule(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def _reduce(node: Node, contents: ShapeContent) -> Types:
    x, listed = operand(node, 0), operand(node, 1)
    if listed is not None:
        require_type("axes", listed, (DType.INT64,))
        require_rank("the list of axes", listed, 0, 1)
    given = [] if listed is None else contents.integers(node, 1)
    is_noop, keepdims = integer(node, "noop_with_empty_axes", 0), integer(node, "keepdims", 1)
    if x is None or is_noop is None or keepdims is None:
        return None
    if given is None:
        lengths = tuple(1 if dim == 1 else None for dim in x.shape)
        return (TensorType(x.dtype, lengths),) if keepdims else None
    if not given and is_noop:
        return (TensorType(x.dtype, x.shape),)
    axes = axes_of(given, len(x.shape)) if given else list(range(len(x.shape)))
    return (TensorType(x.dtype, _reduced(x.shape, axes, keepdims)),)


@type_rule("ArgMax", "ArgMin")
def _place_of_extreme(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    keepdims = integer(node, "keepdims", 1)
    if x is None or keepdims is None:
        return None
    axis = axis_of(node.attributes.get("axis", 0), len(x.shape))
    return (TensorType(DType.INT64, _reduced(x.shape, [axis], keepdims)),)


def _reduced(shape: Shape, axes: Sequence[int], keepdims: int) -> Shape:
    one: tuple[Dim, ...] = (1,) if keepdims else ()
    dims: Shape = ()
    for axis, dim in enumerate(shape):
        dims += one if axis in axes else (dim,)
    return dims
