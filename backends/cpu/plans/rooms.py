"""Where the states that grow begin and end in the memory of a plan. Pure."""

from __future__ import annotations

import math

from ....runtime.lowering.growing_states import GrowingState, shape_with_room
from ....runtime.lowering.strides import row_major
from .operand_layout import Layout, Operand

__all__ = ["Room", "growing_layout"]


class Room:
    """The memory of a state before and after a run, in bytes.

    ``may_stay``: no step writes into what the output has of the input.
    """

    def __init__(
        self, state: GrowingState, source: Operand, target: Operand, *, may_stay: bool
    ) -> None:
        self.state, self.dtype = state, source.dtype.numpy
        item_bytes = self.dtype.itemsize
        given = shape_with_room(source.shape, state.axis, is_window=state.is_window)
        made = shape_with_room(target.shape, state.axis, is_window=state.is_window)
        self.may_stay = may_stay and given == made
        """True if the output may lie in the memory of the input."""
        self.given_shape, self.shape = source.shape, target.shape
        self.moved_bytes = math.prod(source.shape) * item_bytes
        """What is copied where the output may not lie there."""
        self.given_bytes = math.prod(given) * item_bytes
        self.size_bytes = math.prod(made) * item_bytes
        """All that there is room for."""
        self.given_strides = tuple(stride * item_bytes for stride in row_major(given))
        self.strides = tuple(stride * item_bytes for stride in row_major(made))
        self.read_bytes, self.written_bytes = source.buffer.size_bytes, target.buffer.size_bytes
        """What the plan knows of, from where the input begins."""
        self.shift = target.offset_bytes
        """How far behind the input the output begins."""
        head = math.prod(made[state.axis :]) - math.prod(target.shape[state.axis :])
        self.last_start = head * item_bytes
        """Where the output begins at most: the rows of the first head end with its room then."""


def growing_layout(layout: Layout, axis: int, *, is_window: bool = False) -> Layout:
    """Lay the same elements into memory with room."""
    strides = row_major(shape_with_room(layout.shape, axis, is_window=is_window))
    return Layout.plain(layout.shape, layout.dtype, strides)
