"""States that grow in device memory, in the room behind their rows: the part of a plan.

``present = Concat(past, new)``, along an axis that is not the first one, would move every row in
dense memory. Here ``present`` lies in a block with room behind the rows of each head, and a run
whose ``past`` lies in such a block already writes ``new`` behind it, and nothing else. A plan has
the launches that move ``past`` into a block all the same: from dense memory, where the host has
given it, and from a smaller block, where that one is full. A run enqueues one of them, or none.
What reads ``present`` knows how it lies, or gets a dense copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.graph import Node
from ....runtime.lowering.growing_states import shape_with_room
from ....runtime.lowering.strides import row_major
from ..launching.strided_copy import strided_copy
from ..operand import Operand, StridedOperand
from ..plan import Growth, Launch
from ..plan_builder import PlanBuilder

__all__ = ["join_behind"]


def join_behind(node: Node, builder: PlanBuilder) -> bool:
    """Lower a join that begins with a state of the network; False: it is any other."""
    (result,) = node.outputs
    item = builder.growing(result)
    past = node.inputs[0]
    if item is None or past is None:
        return False
    axis = item.state.axis
    source, shape = builder.operand(past), builder.shape(result)
    parts = [builder.operand(value) for value in node.inputs[1:] if value is not None]
    _check_parts(builder, shape, [source, *parts], axis)
    given_room, room = shape_with_room(source.shape, axis), shape_with_room(shape, axis)
    made = builder.temporary(room, builder.dtype(result))
    strides = row_major(room)
    seen = Operand(source.buffer, given_room, source.dtype)
    moves: list[Launch | None] = []
    for operand in (source, seen):
        before = builder.last_launch
        own = row_major(operand.shape)
        strided_copy(builder, operand, made, source.shape, own, target_strides=strides)
        moves.append(None if builder.last_launch is before else builder.last_launch)
    start = source.shape[axis]
    for part in parts:
        own = row_major(part.shape)
        place = start * strides[axis]
        strided_copy(
            builder, part, made, part.shape, own, target_strides=strides, target_offset=place
        )
        start += part.shape[axis]
    builder.define_strided(result, StridedOperand(made, shape, strides))
    state = item.state
    builder.note_growth(
        Growth(
            state.input,
            state.output,
            given_room,
            shape,
            room,
            moves[0],
            moves[1],
            source.size_bytes,
        )
    )
    return True


def _check_parts(
    builder: PlanBuilder, shape: tuple[int, ...], parts: Sequence[Operand], axis: int
) -> None:
    lengths = [part.shape[axis] for part in parts if len(part.shape) == len(shape)]
    is_fit = len(lengths) == len(parts) and all(
        part.shape == (*shape[:axis], part.shape[axis], *shape[axis + 1 :]) for part in parts
    )
    if not is_fit or sum(lengths) != shape[axis]:
        shapes = [list(part.shape) for part in parts]
        raise builder.contradiction(f"{shapes} are not the parts of {list(shape)}")
