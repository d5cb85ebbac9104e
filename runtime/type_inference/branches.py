"""Types of what an If gives: those that its branches agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import ModelError
from ..graph import Graph, Node, TensorType, Value
from ..graph.traversal import all_nodes

__all__ = ["has_branches", "types_of_branches"]


def has_branches(node: Node) -> bool:
    """True for an If."""
    return node.op_type == "If" and not node.domain


def types_of_branches(
    node: Node, infer_node: Callable[[Node], bool]
) -> Sequence[TensorType | None] | None:
    """Infer the types inside the branches of an If, and give those of its outputs.

    ``infer_node`` sets the types of a node's outputs, and says whether it could. None, and nothing
    has changed, where it cannot, and where a branch contradicts itself: no run may ever take it.
    """
    branches = node.bodies()
    before = {
        value: value.type
        for body in branches
        for inner in all_nodes(body)
        for value in inner.outputs
    }
    if all(_is_told(body, infer_node) for body in branches):
        ends = zip(*(body.outputs for body in branches), strict=False)
        return [_agreed(values) for values in ends]
    for value, known in before.items():
        value.type = known
    return None


def _is_told(body: Graph, infer_node: Callable[[Node], bool]) -> bool:
    try:
        return all(map(infer_node, body.nodes))
    except ModelError:
        return False


def _agreed(values: Sequence[Value]) -> TensorType | None:
    """Return the type of one of these values, whichever it is; None if element types differ."""
    types = [value.type for value in values]
    first = types[0]
    if not isinstance(first, TensorType):
        return None
    shape = first.shape
    for other in types[1:]:
        if not isinstance(other, TensorType) or other.dtype is not first.dtype:
            return None
        if shape is None or other.shape is None or len(shape) != len(other.shape):
            shape = None
        else:
            pairs = zip(shape, other.shape, strict=True)
            shape = tuple(one if one == further else None for one, further in pairs)
    return TensorType(first.dtype, shape)
