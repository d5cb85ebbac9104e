"""Types of a whole graph, from its inputs on, in one walk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from ..graph import Graph, Node, TensorType, Value, ValueType, is_static
from ..graph.traversal import all_nodes, all_values
from .bodies import has_told_bodies, types_of_bodies
from .content.shape_content import ShapeContent
from .declared_lengths import with_open_lengths
from .rules import STANDARD_DOMAINS, find_rule

__all__ = [
    "apply_user_rules",
    "correct_graph_types",
    "has_rank",
    "has_static_types",
    "infer_graph_types",
]


def infer_graph_types(graph: Graph, *, leaves_lengths: bool = False) -> bool:
    """Infer the types of all that nodes make; False, and nothing has changed, where that fails.

    True says that every value, those in bodies included, has an element type and a rank, and all
    its lengths, too, if the inputs of the graph have: unless that ``leaves_lengths`` open which
    depend on data. Fails for sequences and other domains than ONNX's, and for bodies that
    contradict themselves: ask onnx then, and ``correct_graph_types`` after it. Raises
    ContradictionError for a node of the graph itself that does; then, too, nothing has changed.
    O(nodes), no I/O.
    """
    before = {value: value.type for value in all_values(graph)}
    is_told = False
    try:
        contents = ShapeContent()
        is_told = True
        for node in graph.nodes:
            if not _infer_node(node, contents):
                is_told = False
                break
        is_told = is_told and (
            leaves_lengths or has_static_types(before) or not has_static_types(graph.inputs)
        )
    finally:
        if not is_told:
            for value, known in before.items():
                value.type = known
    return is_told


def infer_told_types(graph: Graph) -> None:
    """Infer the types that our rules tell, as far as they go; those of other values stay.

    Raises ContradictionError. O(nodes), no I/O.
    """
    contents = ShapeContent()
    for node in graph.nodes:
        types = _types_of(node, contents) or ()
        for value, found in zip(node.outputs, types, strict=False):
            if has_rank(found) or node.type_rule is not None:
                value.type = _told(value.type, found)
        contents.follow(node)


def apply_user_rules(graph: Graph) -> bool:
    """Set what users' rules tell of their operators' outputs, in bodies too; False for nothing new.

    Raises what a rule raises. O(nodes), no I/O.
    """
    is_new = False
    for node in all_nodes(graph):
        if node.type_rule is None:
            continue
        for value, found in zip(node.outputs, node.type_rule(node), strict=False):
            told = _told(value.type, found)
            is_new |= told != value.type
            value.type = told
    return is_new


def _told(known: ValueType | None, found: TensorType | None) -> ValueType | None:
    """Return a type by a rule, or what was known where that says more of the same."""
    if found is None:
        return known
    says_less = isinstance(known, TensorType) and found == TensorType(known.dtype)
    return known if says_less else found


def correct_graph_types(graph: Graph) -> None:
    """Replace types that onnx has inferred, or the file declares, by those of our own rules.

    Of what our rules cannot tell, the element type and the rank stay, and every length is left
    open: none that no rule has proven decides an allocation, a refusal or a kernel's parameters.
    Operators of other domains have the types that their extension or the file says. Bodies that our
    rules do not tell whole are left alone: a branch that no run takes may be impossible. Raises
    ContradictionError for a node that contradicts itself. O(nodes), no I/O.
    """
    contents = ShapeContent()
    for node in graph.nodes:
        types = _types_of(node, contents) or ()
        for value, found in zip_longest(node.outputs, types[: len(node.outputs)]):
            if has_rank(found) or node.type_rule is not None:
                value.type = _told(value.type, found)
            elif node.domain in STANDARD_DOMAINS:
                value.type = with_open_lengths(value.type)
        contents.follow(node)


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


def _types_of(node: Node, contents: ShapeContent) -> Sequence[TensorType | None] | None:
    if node.type_rule is not None:
        return node.type_rule(node)
    rule = find_rule(node)
    if rule is None:
        return types_of_bodies(node, contents, _infer_node) if has_told_bodies(node) else None
    for value in node.inputs:
        if value is not None and not has_rank(value.type):
            return None
    return rule(node, contents)


def has_static_types(values: Iterable[Value]) -> bool:
    """True if all are tensors of known lengths."""
    return all(isinstance(item.type, TensorType) and is_static(item.type.shape) for item in values)


def has_rank(known: object) -> bool:
    """True for a tensor type whose shape, though perhaps not all lengths, is known."""
    return isinstance(known, TensorType) and known.shape is not None
