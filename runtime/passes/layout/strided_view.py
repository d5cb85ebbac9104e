"""What Reshape, Transpose and their kin do to the order of elements, as strides.

Exporters write "split the heads off" in many ways, and what they have in common is which element
ends up where. So a chain of such nodes is followed as what it is to memory: a view of the value
that it starts from. An axis of the view is a list of pieces (length, stride) from the outermost to
the innermost; there is more than one piece where a Reshape has joined axes that do not lie next to
each other. Strides and the offset count elements of the source, which lies in memory row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...graph import Node
from ..rewriting.matching import integers_of, scalar_of, static_shape

__all__ = ["Piece", "StridedView", "apply_node", "merge_pieces"]

Piece = tuple[int, int]
"""Length and stride."""


class StridedView(NamedTuple):
    """Where each element of a value lies in the value that it is a rearrangement of."""

    axes: tuple[tuple[Piece, ...], ...]
    offset: int = 0

    @classmethod
    def whole(cls, shape: Sequence[int]) -> StridedView:
        """View a value as it is."""
        axes, stride = [], 1
        for length in reversed(shape):
            axes.append(merge_pieces([(length, stride)]))
            stride *= length
        return cls(tuple(reversed(axes)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return tuple(_length(axis) for axis in self.axes)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The order of the elements, without regard to the axes."""
        return merge_pieces([piece for axis in self.axes for piece in axis])

    def transpose(self, order: Sequence[int]) -> StridedView:
        """Reorder the axes."""
        return StridedView(tuple(self.axes[axis] for axis in order), self.offset)

    def reshape(self, shape: Sequence[int]) -> StridedView | None:
        """Divide the elements among other axes; None if that cuts a piece unevenly."""
        if 0 in shape or math.prod(shape) != math.prod(self.shape):
            return None
        rest = list(self.pieces)
        axes = []
        for length in shape:
            axis = _take(rest, length)
            if axis is None:
                return None
            axes.append(axis)
        return StridedView(tuple(axes), self.offset)

    def narrow(self, axis: int, start: int, length: int) -> StridedView | None:
        """Keep a range of one axis; None if its elements are not evenly spaced."""
        pieces = self.axes[axis]
        if len(pieces) > 1:
            return None
        stride = pieces[0][1] if pieces else 0
        kept = merge_pieces([(length, stride)])
        axes = (*self.axes[:axis], kept, *self.axes[axis + 1 :])
        return StridedView(axes, self.offset + start * stride)

    def drop(self, axis: int) -> StridedView:
        """Leave out an axis of length 1."""
        return StridedView((*self.axes[:axis], *self.axes[axis + 1 :]), self.offset)


def merge_pieces(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Write an order of elements in its only form: no piece of length 1, neighbours joined."""
    merged: list[Piece] = []
    for length, stride in pieces:
        if length == 1:
            continue
        if merged and merged[-1][1] == length * stride:
            merged[-1] = (merged[-1][0] * length, stride)
        else:
            merged.append((length, stride))
    return tuple(merged)


def apply_node(view: StridedView, node: Node, output_index: int = 0) -> StridedView | None:
    """View a node's output as its first input is viewed; None if the node does more than that.

    Reads Transpose, Reshape, Flatten, Squeeze, Unsqueeze, Identity, Split, Gather of one position
    that there is and Slice of one axis, as far as their shapes are static.
    """
    shape = static_shape(node.outputs[output_index])
    if node.domain or shape is None or 0 in shape:
        return None
    if node.op_type in _RESHAPING:
        return view.reshape(shape)
    if node.op_type == "Transpose":
        order = node.attributes.get("perm", range(len(view.axes))[::-1])
        return view.transpose([int(axis) for axis in order])
    if node.op_type == "Split":
        return _split(view, node, output_index)
    if node.op_type == "Gather":
        return _gather(view, node)
    return _slice(view, node, shape) if node.op_type == "Slice" else None


_RESHAPING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def _split(view: StridedView, node: Node, output_index: int) -> StridedView | None:
    axis = int(node.attributes.get("axis", 0)) % len(view.axes)
    lengths = []
    for value in node.outputs[: output_index + 1]:
        shape = static_shape(value)
        if shape is None:
            return None
        lengths.append(shape[axis])
    return view.narrow(axis, sum(lengths[:-1]), lengths[-1])


def _gather(view: StridedView, node: Node) -> StridedView | None:
    index = node.input_at(1)
    if index is None or index.constant is None or index.constant.ndim:
        return None
    axis = int(node.attributes.get("axis", 0)) % len(view.axes)
    position, length = int(index.constant), view.shape[axis]
    if not -length <= position < length:
        return None
    one = view.narrow(axis, position % length, 1)
    return one.drop(axis) if one is not None else None


def _slice(view: StridedView, node: Node, shape: Sequence[int]) -> StridedView | None:
    """Follow a Slice of one axis by steps of 1."""
    starts, axes = integers_of(node.input_at(1)), integers_of(node.input_at(3))
    has_steps = node.input_at(4) is not None
    if starts is None or axes is None or len(starts) != 1 or len(axes) != 1:
        return None
    if has_steps and scalar_of(node.input_at(4)) != 1:
        return None
    axis = axes[0] % len(view.axes)
    start = max(starts[0] + view.shape[axis], 0) if starts[0] < 0 else starts[0]
    return view.narrow(axis, start, shape[axis])


def _length(axis: Sequence[Piece]) -> int:
    return math.prod(length for length, _ in axis)


def _take(rest: list[Piece], wanted: int) -> tuple[Piece, ...] | None:
    """Take the pieces of one axis off the front, the last one cut to fit; None if it does not."""
    taken: list[Piece] = []
    while wanted > 1:
        length, stride = rest.pop(0)
        if wanted % length == 0:
            taken.append((length, stride))
            wanted //= length
        elif length % wanted == 0:
            inner = length // wanted
            taken.append((wanted, stride * inner))
            rest.insert(0, (inner, stride))
            wanted = 1
        else:
            return None
    return merge_pieces(taken)
