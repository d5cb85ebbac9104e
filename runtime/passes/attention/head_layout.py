"""Where an exporter has put the columns of a matrix that are divided among heads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...graph import Graph, Node, Value
from ..layout.strided_view import StridedView, apply_node, merge_pieces
from ..rewriting.matching import commuted, is_standard, scalar_of, static_shape

__all__ = ["Columns", "HeadLayout", "find_columns", "scalar_factor"]


class HeadLayout(NamedTuple):
    """The lengths of an operand: rows are queries or keys, depth is the columns of one head."""

    batch: int
    heads: int
    rows: int
    depth: int

    @property
    def width(self) -> int:
        """The columns of all heads."""
        return self.heads * self.depth

    def is_split(self, view: StridedView, pitch: int, *, has_rows_last: bool = False) -> bool:
        """True for a view (batch, heads, rows, depth) of a source (batch, rows, pitch).

        Batch and heads may be one axis; ``has_rows_last`` swaps the last two. The heads' columns
        lie side by side from the view's offset on.
        """
        if len(view.axes) < 2 or view.offset + self.width > pitch:
            return False
        leading = merge_pieces([piece for axis in view.axes[:-2] for piece in axis])
        matrix = [merge_pieces([(self.rows, pitch)]), merge_pieces([(self.depth, 1)])]
        return (
            leading == merge_pieces([(self.batch, self.rows * pitch), (self.heads, self.depth)])
            and list(view.axes[-2:]) == matrix[:: -1 if has_rows_last else 1]
        )

    def is_merged(self, view: StridedView) -> bool:
        """True for a view of (batch, heads, rows, depth) in the order batch, rows, heads, depth."""
        matrix = self.rows * self.depth
        order = [
            (self.batch, self.heads * matrix),
            (self.rows, self.depth),
            (self.heads, matrix),
            (self.depth, 1),
        ]
        return view.offset == 0 and view.pieces == merge_pieces(order)


class Columns(NamedTuple):
    """Columns ``offset`` to ``offset + width`` of the source, seen as (batch, rows, pitch).

    ``scale`` is what they are multiplied with on the way to the operand, by the ``nodes``.
    """

    source: Value
    offset: int
    pitch: int
    scale: float
    nodes: tuple[Node, ...]


def find_columns(
    value: Value,
    layout: HeadLayout,
    graph: Graph,
    *,
    has_rows_last: bool = False,
    may_scale: bool = True,
) -> Columns | None:
    """Find the value before the heads were split off: the one that needs the least around it.

    That is one of the right shape rather than one that holds more columns, or has other axes.
    """
    best, best_cost = None, 3
    for source, nodes, view, scale in _walk_back(value, graph, may_scale):
        shape = static_shape(source)
        if shape is None or 0 in shape:
            break
        pitch, rest = divmod(math.prod(shape), layout.batch * layout.rows)
        if rest or not layout.is_split(view, pitch, has_rows_last=has_rows_last):
            continue
        is_shaped = shape == (layout.batch, layout.rows, pitch)
        cost = (pitch != layout.width) + (not is_shaped)
        if cost <= best_cost:
            best, best_cost = Columns(source, view.offset, pitch, scale, nodes), cost
    return best


def scalar_factor(node: Node) -> tuple[Value, float] | None:
    """Split a Mul or Div by a constant number into the value and the factor."""
    if not is_standard(node, "Mul", "Div"):
        return None
    for value, constant in commuted(node):
        number = scalar_of(constant)
        if number is None or static_shape(value) != static_shape(node.outputs[0]):
            continue
        if node.op_type == "Mul":
            return value, number
        return (value, 1 / number) if number else None
    return None


def _walk_back(
    value: Value, graph: Graph, may_scale: bool
) -> Iterator[tuple[Value, tuple[Node, ...], StridedView, float]]:
    """Walk to what a value is a rearrangement of, with the nodes between, its view, its factor."""
    nodes: tuple[Node, ...] = ()
    moves: list[tuple[Node, int]] = []
    scale, source = 1.0, value
    while True:
        view = _view(source, moves)
        if view is None:
            return
        yield source, nodes, view, scale
        node = source.producer
        if node is None or node.graph is not graph:
            return
        factor = scalar_factor(node) if may_scale else None
        if factor is not None:
            scale *= factor[1]
            origin: Value | None = factor[0]
        else:
            moves.insert(0, (node, source.output_index))
            origin = node.inputs[0] if node.inputs else None
        if origin is None:
            return
        nodes, source = (*nodes, node), origin


def _view(source: Value, moves: list[tuple[Node, int]]) -> StridedView | None:
    shape = static_shape(source)
    view = None if shape is None else StridedView.whole(shape)
    for node, output_index in moves:
        view = None if view is None else apply_node(view, node, output_index)
    return view
