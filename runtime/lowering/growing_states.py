"""States that each run makes longer or moves on, and where in memory that needs no copy. Pure.

Theory of operation. Exporters write keys and values of the past as ``present = Concat(past, new)``
along an axis that is not the first one: the rows of each head lie together, and in dense memory
every step would have to move them all. Here there is room behind the rows of each head, and how
much depends on the length alone: the strides of a state are a function of its shape, as plans need,
and are the same for all lengths that have the same room. Where a run gives memory for the output
that is the input's own, the copy of what was there finds itself in its place, and does nothing;
what is new is written into the room. Matmuls read rows that lie together.

A window of fixed length moves on through its room: the first rows are cut off before the join, or
after it. The output's memory begins where the input does, and the output some rows behind that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...errors import GraphError
from ..graph import Graph, Node, TensorType, Value, is_static
from ..graph.sym_int import computed
from .slice import slice_box

__all__ = ["GrowingState", "JoinedState", "growing_states", "shape_with_room"]

FEWEST_ROWS = 32
"""Room for at least this number of rows, so that short states are not copied every few steps."""


class GrowingState(NamedTuple):
    """An input and the output that goes on behind it, by their places; joined along ``axis``.

    A window has the same length before and after: what is joined pushes as much out of it.
    """

    input: int
    output: int
    axis: int
    is_window: bool = False


class JoinedState(NamedTuple):
    """A state in the graph of a plan, and the join that makes it or what it is cut from.

    The output begins ``shift`` rows behind the input, and what is joined ``lead`` rows behind it.
    """

    state: GrowingState
    joined: Value
    shift: int = 0
    lead: int = 0


def growing_states(graph: Graph, pairs: Mapping[str, str]) -> list[JoinedState]:
    """List the states, of pairs input -> output, that are what they were and what is joined."""
    if not pairs:
        return []
    outputs = graph.outputs
    found = []
    for index, past in enumerate(graph.inputs):
        made = [place for place, value in enumerate(outputs) if value.name == pairs.get(past.name)]
        if made and outputs.count(outputs[made[0]]) == 1:
            joined = _joined(index, past, made[0], outputs[made[0]])
            found += [] if joined is None else [joined]
    return found


def _joined(index: int, past: Value, place: int, value: Value) -> JoinedState | None:
    node = value.producer
    if node is None or node.domain:
        return None
    if node.op == "Slice":
        return _cut_after(node, index, past, place, value)
    axis = _axis_of_join(node)
    first = node.inputs[0]
    if axis is None or first is None or past in node.inputs[1:]:
        return None
    if first is past:
        return JoinedState(GrowingState(index, place, axis), value)
    cut = first.producer
    shift = None if cut is None or cut.inputs[0] is not past else _rows_cut(cut, axis)
    if not shift or node.inputs.count(first) > 1 or not _is_window(past, value, axis, shift):
        return None
    return JoinedState(GrowingState(index, place, axis, True), value, shift, shift)


def _cut_after(node: Node, index: int, past: Value, place: int, value: Value) -> JoinedState | None:
    """Recognise the end of what a state was and what is joined."""
    joined = node.inputs[0]
    join = None if joined is None or joined.is_graph_output else joined.producer
    if joined is None or join is None or join.domain or join.inputs[0] is not past:
        return None
    axis = _axis_of_join(join)
    if axis is None or join.inputs.count(past) > 1:
        return None
    shift = _rows_cut(node, axis)
    if not shift or not _is_window(past, value, axis, shift):
        return None
    return JoinedState(GrowingState(index, place, axis, True), joined, shift)


def _axis_of_join(node: Node) -> int | None:
    kind = node.outputs[0].type
    if node.op != "Concat" or node.domain or not isinstance(kind, TensorType) or kind.shape is None:
        return None
    axis, rank = int(node.attributes["axis"]), len(kind.shape)
    return axis % rank if -rank <= axis < rank else None


def _rows_cut(node: Node, axis: int) -> int | None:
    """Return how many rows a Slice leaves out, if they are the first ones; None if it does else."""
    source = node.inputs[0]
    before, after = None if source is None else _shape(source), _shape(node.outputs[0])
    if node.op != "Slice" or node.domain or before is None or after is None:
        return None
    if any(value is not None and value.constant is None for value in node.inputs[1:]):
        return None
    try:
        begin, step = slice_box(node, before)
    except GraphError:  # which is raised where the node is lowered
        return None
    expected = [length - first for length, first in zip(before, begin, strict=True)]
    is_end = all(number == 1 for number in step) and expected == list(after)
    cut = begin.pop(axis)
    return cut if is_end and not any(begin) else None


def _is_window(past: Value, value: Value, axis: int, shift: int) -> bool:
    before, after = _shape(past), _shape(value)
    if before is None or after is None or before != after:
        return False
    return shift <= shape_with_room(before, axis, is_window=True)[axis] - before[axis]


def _shape(value: Value) -> tuple[int, ...] | None:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape if is_static(shape) else None


def shape_with_room(shape: Sequence[int], axis: int, *, is_window: bool = False) -> tuple[int, ...]:
    """Return the shape of the memory that a state of this shape begins in: longer along its axis.

    Each step to more room is half as much again, so copies are few; as is that of a window.
    """
    rows = _rows_of_window if is_window else _rows_with_room
    return (*shape[:axis], computed(rows, shape[axis], FEWEST_ROWS), *shape[axis + 1 :])


def _rows_with_room(length: int, fewest: int) -> int:
    rows = fewest
    while rows < length:
        rows += rows // 2
    return rows


def _rows_of_window(length: int, fewest: int) -> int:
    return length + max(length // 2, fewest)
