"""Types of nodes that a rewrite makes, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph import DType, Node, TensorType
from .content.shape_content import ShapeContent
from .inference import has_rank
from .rules import find_rule

__all__ = ["types_of_made"]


_LIKE_FIRST = (
    *("Add", "AveragePool", "Clip", "Concat", "Conv", "Div", "Flatten", "Gather", "Gelu", "Gemm"),
    *("GlobalAveragePool", "Identity", "LayerNormalization", "LeakyRelu", "MatMul", "Max", "Mul"),
    *("Neg", "Pad", "RMSNormalization", "ReduceMean", "ReduceSum", "Reshape", "Sigmoid", "Slice"),
    *("Softmax", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze"),
)
_SOURCES = {
    **dict.fromkeys(_LIKE_FIRST, 0),
    "DequantizeLinear": 1,
    "QuantizeLinear": 2,
    "Where": 1,
}
"""By operator: the input of whose element type the first output is."""


def types_of_made(
    contents: ShapeContent,
) -> Callable[[Node], Sequence[TensorType | None] | None]:
    """Return what infers a node's types and sets them; give it the nodes in topological order.

    Where a rank is not known, the element type alone. None for a node whose rule cannot tell, or
    that has none. Raises ContradictionError.
    """

    def infer(node: Node) -> Sequence[TensorType | None] | None:
        rule = find_rule(node)
        if rule is None:
            return None
        is_ranked = all(has_rank(item.type) for item in node.inputs if item is not None)
        types = rule(node, contents) if is_ranked else _element_types(node)
        for value, known in zip(node.outputs, types or (), strict=False):
            value.type = known
        contents.follow(node)
        return types

    return infer


def _element_types(node: Node) -> Sequence[TensorType | None] | None:
    """Return the first output's element type, of any shape; None where no input tells it. Pure."""
    if node.op_type == "Cast":
        return [TensorType(DType(node.attributes["to"]))]
    source = _SOURCES.get(node.op_type)
    given = None if source is None else node.input_at(source)
    if given is None or not isinstance(given.type, TensorType):
        return None
    return [TensorType(given.type.dtype)]
