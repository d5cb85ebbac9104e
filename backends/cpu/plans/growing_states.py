"""States that each run makes longer, and the order in memory in which that needs no copy. Pure.

Theory of operation. Exporters write keys and values of the past as ``present = Concat(past, new)``
along an axis that is not the first one, so that the rows of each head lie together and every step
would have to move them all. Here the growing axis is the outermost one in memory, whatever its
place in the shape: strides do not depend on the length, and what is new lies behind what was there.
Where a run gives memory for the output that begins with the input's own, the copy of what was there
finds itself in its place, and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....runtime.graph import Graph, TensorType, Value
from ....runtime.lowering.strides import row_major
from .operand_layout import Layout

__all__ = ["GrowingState", "growing_layout", "growing_states"]


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


def growing_layout(layout: Layout, axis: int) -> Layout:
    """Order the same elements so that the axis is the outermost one in memory."""
    shape = list(layout.shape)
    strides = row_major([shape.pop(axis), *shape])
    moved = (*strides[1 : axis + 1], strides[0], *strides[axis + 1 :])
    return Layout.plain(layout.shape, layout.dtype, moved)
