"""Types of nodes that a rewrite makes, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..graph import Node, TensorType
from .content.shape_content import ShapeContent
from .inference import has_rank
from .rules import find_rule

__all__ = ["types_of_made"]


def types_of_made(
    contents: ShapeContent,
) -> Callable[[Node], Sequence[TensorType | None] | None]:
    """Return what infers a node's types and sets them; give it the nodes in topological order.

    None for a node whose rule cannot tell, or that has none. Raises ContradictionError.
    """

    def infer(node: Node) -> Sequence[TensorType | None] | None:
        rule = find_rule(node)
        if rule is None or not all(has_rank(item.type) for item in node.inputs if item is not None):
            return None
        types = rule(node, contents)
        for value, known in zip(node.outputs, types or (), strict=False):
            value.type = known
        contents.follow(node)
        return types

    return infer
