"""Types of what nodes with bodies give: what branches agree on, and what holds in each iteration.

What a loop hands from one iteration to the next may change its lengths. So the body is walked with
what the loop is given, then with those lengths open that the body changes, until it changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from ...errors import ModelError
from ..graph import Dim, DType, Graph, Node, TensorType, Value
from ..graph.traversal import all_values
from .content.shape_content import ShapeContent
from .contradiction import contradiction_of
from .operands import operand

__all__ = ["has_told_bodies", "types_of_bodies"]

InferNode = Callable[[Node, ShapeContent], bool]
"""Sets the types of a node's outputs, and says whether it could."""

Types = Sequence[TensorType | None] | None

_CONTROL = {
    "If": {(0, "condition"): DType.BOOL},
    "Loop": {(0, "number of turns"): DType.INT64, (1, "condition"): DType.BOOL},
}

_MOST_NESTED = 3
"""Loops inside each other, each of which walks its body twice or more often."""


def has_told_bodies(node: Node) -> bool:
    """True for an If, a Loop and a Scan."""
    return node.op_type in _TYPES and not node.domain


def types_of_bodies(node: Node, contents: ShapeContent, infer_node: InferNode) -> Types:
    """Infer the types inside the bodies of such a node, and give those of its outputs.

    None, and no type has changed, where ``infer_node`` cannot tell one, and where a body
    contradicts itself: no run may ever get there. Raises ContradictionError for a condition, or a
    number of turns, of another type.
    """
    for (index, what), dtype in _CONTROL.get(node.op_type, {}).items():
        given = operand(node, index)
        if given is not None and given.dtype is not dtype:
            why = f"its {what} is {given.dtype.label}, and has to be {dtype.label}"
            raise contradiction_of(node, why)
    bodies = node.bodies()
    values = [value for body in bodies for value in all_values(body)]
    before = [value.type for value in values]

    def is_told(body: Graph) -> bool:
        contents.forget(all_values(body))
        return all(infer_node(inner, contents) for inner in body.nodes)

    try:
        types = _TYPES[node.op_type](node, bodies, is_told)
    except ModelError:
        types = None
    if types is None:
        for value, known in zip(values, before, strict=True):
            value.type = known
    return types


def _types_of_if(node: Node, bodies: Sequence[Graph], is_told: Callable[[Graph], bool]) -> Types:
    has_form = all(not body.inputs and len(body.outputs) == len(node.outputs) for body in bodies)
    if len(bodies) != 2 or not has_form or not all(map(is_told, bodies)):
        return None
    ends = zip(*(body.outputs for body in bodies), strict=True)
    return [_agreed(one.type, other.type) for one, other in ends]


def _types_of_loop(node: Node, bodies: Sequence[Graph], is_told: Callable[[Graph], bool]) -> Types:
    if len(bodies) != 1:
        return None
    (body,) = bodies
    states = [value for value in node.inputs[1:] if value is not None]  # and whether it goes on
    given = [value.type for value in states]
    if len(node.inputs) < 2 or node.inputs[1] is None:
        given.insert(0, TensorType(DType.BOOL, ()))
    if len(body.inputs) != len(given) + 1 or len(body.outputs) != len(node.outputs) + 1:
        return None
    counter = body.inputs[0]
    is_list = isinstance(counter.type, TensorType) and len(counter.type.shape or ()) == 1
    counter.type = TensorType(DType.INT64, (1,) if is_list else ())  # as the body declares it
    kept = _kept(body, body.inputs[1:], given, is_told)
    if kept is None:
        return None
    items = body.outputs[len(given) :]
    return [*kept[1:], *(_stacked(item, 0, None) for item in items)]


def _types_of_scan(node: Node, bodies: Sequence[Graph], is_told: Callable[[Graph], bool]) -> Types:
    scanned = node.attributes.get("num_scan_inputs")
    if len(bodies) != 1 or not isinstance(scanned, int):
        return None
    (body,) = bodies
    count = len(node.inputs) - scanned
    if (
        not 0 <= count < len(node.inputs)
        or len(body.inputs) != len(node.inputs)
        or len(body.outputs) != len(node.outputs)
    ):
        return None
    lengths: set[Dim] = set()
    axes = _axes(node, "scan_input_axes", len(node.inputs) - count)
    for axis, value, item in zip(axes, node.inputs[count:], body.inputs[count:], strict=True):
        kind = None if value is None else value.type
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        if not -len(kind.shape) <= axis < len(kind.shape):
            return None
        place = axis % len(kind.shape)
        lengths.add(kind.shape[place])
        item.type = TensorType(kind.dtype, kind.shape[:place] + kind.shape[place + 1 :])
    given = [None if value is None else value.type for value in node.inputs[:count]]
    kept = _kept(body, body.inputs[:count], given, is_told)
    if kept is None:
        return None
    (length,) = lengths if len(lengths) == 1 else {None}
    axes = _axes(node, "scan_output_axes", len(node.outputs) - count)
    items = zip(body.outputs[count:], axes, strict=True)
    return [*kept, *(_stacked(item, axis, length) for item, axis in items)]


_TYPES = {"If": _types_of_if, "Loop": _types_of_loop, "Scan": _types_of_scan}


def _kept(
    body: Graph, states: Sequence[Value], given: Sequence[object], is_told: Callable[[Graph], bool]
) -> list[TensorType] | None:
    """Infer the body of a loop, and give the types that its states have in each iteration.

    The first outputs of the body are the states of the next one.
    """
    kept = [known for known in given if isinstance(known, TensorType) and known.shape is not None]
    if len(kept) < len(given) or _nested_loops(body) >= _MOST_NESTED:
        return None
    for _ in chain((None,), *(known.shape or () for known in kept)):  # each round opens a length
        for value, known in zip(states, kept, strict=True):
            value.type = known
        if not is_told(body):
            return None
        further = [
            _agreed(known, value.type)
            for known, value in zip(kept, body.outputs[: len(kept)], strict=True)
        ]
        if further == kept:
            return kept
        kept = [known for known in further if known is not None and known.shape is not None]
        if len(kept) < len(further):
            return None
    return None


def _nested_loops(body: Graph) -> int:
    """Count how many loops are inside each other at most."""
    found = 0
    for node in body.nodes:
        for inner in node.bodies():
            found = max(found, _nested_loops(inner) + (node.op_type != "If"))
    return found


def _agreed(one: object, other: object) -> TensorType | None:
    """Return the type of something that is either; None for different element types."""
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        return None
    if one.dtype is not other.dtype:
        return None
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return TensorType(one.dtype)
    pairs = zip(one.shape, other.shape, strict=True)
    return TensorType(one.dtype, tuple(mine if mine == yours else None for mine, yours in pairs))


def _stacked(item: Value, axis: int, length: Dim) -> TensorType | None:
    """Return the type of what a loop collects of each iteration."""
    kind = item.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    rank = len(kind.shape) + 1
    if not -rank <= axis < rank:
        return None
    place = axis % rank
    return TensorType(kind.dtype, (*kind.shape[:place], length, *kind.shape[place:]))


def _axes(node: Node, name: str, count: int) -> list[int]:
    found = node.attributes.get(name)
    return found if isinstance(found, list) and len(found) == count else [0] * count
