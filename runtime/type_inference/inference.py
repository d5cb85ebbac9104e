"""Types of a whole graph, from its inputs on, in one walk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from ..graph import Graph, Node, TensorType, Value, ValueType, is_static
from .rules import STANDARD_DOMAINS, find_rule
from .shape_content import ShapeContent

__all__ = [
    "correct_graph_types",
    "has_rank",
    "has_static_types",
    "infer_graph_types",
    "open_untold_lengths",
]


def infer_graph_types(graph: Graph) -> bool:
    """Infer the types of all that nodes make; False, and nothing has changed, where that fails.

    True says that every value has an element type and a rank, and all its lengths, too, if the
    inputs of the graph have. Fails for bodies, sequences, other domains than ONNX's and shapes that
    depend on data: ask onnx then, and ``correct_graph_types`` after it. Raises ContradictionError
    for a node that contradicts itself; then, too, nothing has changed. O(nodes), no I/O.
    """
    before = {value: value.type for node in graph.nodes for value in node.outputs}
    is_told = False
    try:
        contents = ShapeContent()
        is_told = all(_infer_node(node, contents) for node in graph.nodes)
        is_told = is_told and (has_static_types(before) or not has_static_types(graph.inputs))
    finally:
        if not is_told:
            for value, known in before.items():
                value.type = known
    return is_told


def correct_graph_types(graph: Graph) -> None:
    """Replace types that onnx has inferred, or the file declares, by those of our own rules.

    A rule's type replaces the known one, which fills in only the lengths that the rule leaves open.
    What has no rule, or whose rule cannot tell, keeps its type. Raises ContradictionError for a
    node that contradicts itself. Bodies are left alone: a branch that no run takes may be
    impossible. O(nodes), no I/O.
    """
    contents = ShapeContent()
    for node in graph.nodes:
        for value, found in zip(node.outputs, _types_of(node, contents) or (), strict=False):
            value.type = _filled(found, value.type)
        contents.follow(node)


def open_untold_lengths(graph: Graph) -> None:
    """Leave open every length that our rules do not tell from the inputs of the graph on.

    Of what only onnx or the file says of ONNX's own operators, the element type and the rank stay:
    by a length that no rule has proven, nothing is to be refused. Other operators keep what their
    extension or the file says. Bodies are left alone. Raises ContradictionError for a node that
    contradicts itself. O(nodes), no I/O.
    """
    contents = ShapeContent()
    for node in graph.nodes:
        types = _types_of(node, contents) or ()
        for value, found in zip_longest(node.outputs, types[: len(node.outputs)]):
            if has_rank(found):
                value.type = found
            elif node.domain in STANDARD_DOMAINS:
                value.type = _with_open_lengths(value.type)
        contents.follow(node)


def _with_open_lengths(known: ValueType | None) -> ValueType | None:
    if isinstance(known, TensorType) and known.shape is not None:
        return TensorType(known.dtype, (None,) * len(known.shape))
    return known


def _infer_node(node: Node, contents: ShapeContent) -> bool:
    types = _types_of(node, contents)
    if types is None or len(types) < len(node.outputs):
        return False
    for value, found in zip(node.outputs, types, strict=False):
        if not has_rank(found):
            return False
        value.type = found
    contents.follow(node)
    return True


def _types_of(node: Node, contents: ShapeContent) -> Sequence[TensorType] | None:
    rule = find_rule(node)
    if rule is None or not all(has_rank(value.type) for value in node.inputs if value is not None):
        return None
    return rule(node, contents)


def _filled(found: TensorType, known: ValueType | None) -> TensorType:
    """Put known lengths where the rule has found none, if they speak of the same tensor."""
    if not isinstance(known, TensorType) or known.dtype is not found.dtype:
        return found
    if known.shape is None or found.shape is None or len(known.shape) != len(found.shape):
        return found
    pairs = zip(found.shape, known.shape, strict=True)
    return TensorType(found.dtype, tuple(b if a is None else a for a, b in pairs))


def has_static_types(values: Iterable[Value]) -> bool:
    """True if all are tensors of known lengths."""
    return all(isinstance(item.type, TensorType) and is_static(item.type.shape) for item in values)


def has_rank(known: object) -> bool:
    """True for a tensor type whose shape, though perhaps not all lengths, is known."""
    return isinstance(known, TensorType) and known.shape is not None
