"""States that each run makes longer, and the order in memory in which that needs no copy. Pure.

Theory of operation. Exporters write keys and values of the past as ``present = Concat(past, new)``
along an axis that is not the first one: the rows of each head lie together, and in dense memory
every step would have to move them all. Here there is room behind the rows of each head, and how
much depends on the length alone: the strides of a state are a function of its shape, as plans need,
and are the same for all lengths that have the same room. Where a run gives memory for the output
that is the input's own, the copy of what was there finds itself in its place, and does nothing;
what is new is written into the room. Products read rows that lie together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....runtime.graph import Graph, TensorType, Value
from ....runtime.graph.sym_int import computed
from ....runtime.lowering.strides import row_major
from .operand_layout import Layout

__all__ = ["GrowingState", "growing_layout", "growing_states", "shape_with_room"]

FEWEST_ROWS = 32
"""Room for so many at least, so that short states are not copied every few steps."""


@dataclass(frozen=True)
class GrowingState:
    """An input and the output that is the same and more, by their places; grows along ``axis``."""

    input: int
    output: int
    axis: int


def growing_states(graph: Graph, pairs: Mapping[str, str]) -> list[GrowingState]:
    """List the states, of pairs input -> output, whose output is the input and what is joined."""
    if not pairs:
        return []
    outputs = graph.outputs
    found = []
    for index, past in enumerate(graph.inputs):
        made = [place for place, value in enumerate(outputs) if value.name == pairs.get(past.name)]
        axis = _joined_axis(outputs[made[0]], past) if made else None
        if axis is not None and outputs.count(outputs[made[0]]) == 1:
            found.append(GrowingState(index, made[0], axis))
    return found


def _joined_axis(value: Value, past: Value) -> int | None:
    node, kind = value.producer, value.type
    if node is None or node.op != "Concat" or node.domain or not isinstance(kind, TensorType):
        return None
    if node.inputs[0] is not past or node.inputs.count(past) > 1 or kind.shape is None:
        return None
    axis, rank = int(node.attributes["axis"]), len(kind.shape)
    return axis % rank if -rank <= axis < rank else None


def shape_with_room(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the shape of the memory that a state of this shape begins in: longer along its axis.

    Each step to more room is half as much again, so copies are few.
    """
    return (*shape[:axis], computed(_rows_with_room, shape[axis], FEWEST_ROWS), *shape[axis + 1 :])


def _rows_with_room(length: int, fewest: int) -> int:
    rows = fewest
    while rows < length:
        rows += rows // 2
    return rows


def growing_layout(layout: Layout, axis: int) -> Layout:
    """Lay the same elements into memory with room."""
    strides = row_major(shape_with_room(layout.shape, axis))
    return Layout.plain(layout.shape, layout.dtype, strides)
