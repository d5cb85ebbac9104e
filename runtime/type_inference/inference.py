"""Types of a whole graph, from its inputs on, in one walk."""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import Graph, Node, TensorType, Value, is_static
from .rules import find_rule
from .shape_content import ShapeContent

__all__ = ["has_rank", "has_static_types", "infer_graph_types"]


def infer_graph_types(graph: Graph) -> bool:
    """Infer the types of all that nodes make; False, and nothing has changed, where that fails.

    True says that every value has an element type and a rank, and all its lengths, too, if the
    inputs of the graph have. Fails for bodies, sequences, other domains than ONNX's, shapes that
    depend on data, and nodes that contradict themselves: ask onnx then. O(nodes), no I/O.
    """
    before = {value: value.type for node in graph.nodes for value in node.outputs}
    contents = ShapeContent()
    is_told = all(_infer_node(node, contents) for node in graph.nodes)
    if is_told and (has_static_types(before) or not has_static_types(graph.inputs)):
        return True
    for value, known in before.items():
        value.type = known
    return False


def _infer_node(node: Node, contents: ShapeContent) -> bool:
    rule = find_rule(node)
    if rule is None or not all(has_rank(value.type) for value in node.inputs if value is not None):
        return False
    types = rule(node, contents)
    if types is None or len(types) < len(node.outputs):
        return False
    for value, found in zip(node.outputs, types, strict=False):
        if not has_rank(found):
            return False
        value.type = found
    contents.follow(node)
    return True


def has_static_types(values: Iterable[Value]) -> bool:
    """True if all are tensors of known lengths."""
    return all(isinstance(item.type, TensorType) and is_static(item.type.shape) for item in values)


def has_rank(known: object) -> bool:
    """True for a tensor type whose shape, though perhaps not all lengths, is known."""
    return isinstance(known, TensorType) and known.shape is not None
