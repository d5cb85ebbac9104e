"""Multi-head attention as exporters write it: from the split into heads to their merge."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ...graph import DType, Graph, Node, Value
from ..layout.strided_view import StridedView, apply_node
from ..rewriting.matching import (
    does_broadcast,
    dtype_of,
    is_standard,
    only_user,
    scalar_of,
    static_shape,
)
from .attention_scores import Scores, mask_shape, match_scores
from .head_layout import Columns, HeadLayout, find_columns

__all__ = ["AttentionMatch", "find_removable", "match_attention"]

_MERGING = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


class AttentionMatch(NamedTuple):
    """An attention over static shapes; ``result``, made by ``last``, is to be replaced.

    All the ``nodes`` are part of it; if one of the ``essential`` ones has other users, too, nothing
    is gained. ``has_guard``: a query for which all keys are excluded gets zeros.
    """

    query: Columns
    key: Columns
    value: Columns
    layout: HeadLayout
    key_count: int
    scores: Scores
    softmax: Node
    essential: tuple[Node, ...]
    nodes: tuple[Node, ...]
    result: Value
    has_guard: bool
    dtype: DType

    @property
    def scale(self) -> float:
        return self.scores.scale * self.query.scale * self.key.scale

    @property
    def last(self) -> Node:
        assert self.result.producer is not None  # it is what a node of the pattern makes
        return self.result.producer


def match_attention(
    softmax: Node, graph: Graph, dtypes: Collection[DType]
) -> AttentionMatch | None:
    """Match the attention around a Softmax, in one of these types and of known shapes."""
    shape = static_shape(softmax.outputs[0])
    dtype = dtype_of(softmax.outputs[0])
    if shape is None or 0 in shape or dtype is None or dtype not in dtypes:
        return None
    if len(shape) < 2 or int(softmax.attributes.get("axis", -1)) not in (-1, len(shape) - 1):
        return None
    scores = match_scores(softmax.inputs[0], graph)
    guard = _guard(softmax.outputs[0])
    probabilities = guard[-1].outputs[0] if guard else softmax.outputs[0]
    context, between = _context(probabilities)
    if scores is None or context is None or context.inputs[1] is None:
        return None
    essential = (scores.matmul, softmax, *guard, *between, context)
    for merged in sorted(_merges(context), key=lambda merged: merged.cost):
        operands = _operands(scores, context.inputs[1], merged.layout, graph)
        target = (merged.layout.batch, merged.layout.heads, *shape[-2:])
        masks = [mask_shape(step, target) for step in scores.steps]
        if operands is not None and all(does_broadcast(mask, target) for mask in masks):
            before = [node for operand in operands for node in operand.nodes]
            nodes = [*essential, *scores.nodes, *before, *merged.nodes]
            return AttentionMatch(
                *operands,
                merged.layout,
                shape[-1],
                scores,
                softmax,
                essential,
                tuple(dict.fromkeys(nodes)),
                merged.result,
                has_guard=bool(guard),
                dtype=dtype,
            )
    return None


def _guard(probabilities: Value) -> tuple[Node, ...]:
    """Find the IsNaN and the Where by which exporters replace the quotient 0 / 0."""
    users = probabilities.consumers
    if len(probabilities.uses) != 2 or probabilities.is_graph_output or len(users) != 2:
        return ()
    check, choice = users if is_standard(users[0], "IsNaN") else reversed(users)
    is_guard = (
        is_standard(check, "IsNaN")
        and is_standard(choice, "Where")
        and choice.inputs[0] is check.outputs[0]
        and scalar_of(choice.inputs[1]) == 0
        and choice.inputs[2] is probabilities
        and static_shape(choice.outputs[0]) == static_shape(probabilities)
    )
    return (check, choice) if is_guard else ()


def _context(probabilities: Value) -> tuple[Node | None, list[Node]]:
    """Find the matmul of the probabilities with the values, and Reshapes on the way to it."""
    between: list[Node] = []
    user = only_user(probabilities)
    while user is not None and is_standard(user, "Reshape"):
        before, after = static_shape(probabilities), static_shape(user.outputs[0])
        if before is None or after is None or before[-2:] != after[-2:]:
            return None, []
        between.append(user)
        probabilities = user.outputs[0]
        user = only_user(probabilities)
    if user is None or not is_standard(user, "MatMul") or user.inputs[0] is not probabilities:
        return None, []
    return user, between


class _Merge(NamedTuple):
    """A value that holds the heads side by side, and the nodes that lead to it.

    ``cost`` is lowest for the value that needs no Reshape and for which most nodes go.
    """

    result: Value
    nodes: tuple[Node, ...]
    layout: HeadLayout
    cost: tuple[bool, int]


def _merges(context: Node) -> Iterator[_Merge]:
    """Follow the matmul with the values to all that hold the heads in order."""
    value: Value = context.outputs[0]
    shape = static_shape(value)
    if shape is None or 0 in shape or len(shape) not in (3, 4):
        return
    *leading, rows, depth = shape
    view: StridedView | None = StridedView.whole(shape)
    nodes: tuple[Node, ...] = ()
    while view is not None:
        heads = leading[1] if len(leading) == 2 else max(view.shape[-1] // depth, 1)
        layout = HeadLayout(math.prod(leading) // heads, heads, rows, depth)
        whole = (layout.batch, rows, layout.width)
        if math.prod(leading) % heads == 0 and layout.is_merged(view):
            yield _Merge(value, nodes, layout, (view.shape != whole, -len(nodes)))
        user = only_user(value)
        if user is None or not is_standard(user, *_MERGING) or user.inputs[0] is not value:
            return
        view = apply_node(view, user)
        nodes, value = (*nodes, user), user.outputs[0]


def _operands(
    scores: Scores, values: Value, layout: HeadLayout, graph: Graph
) -> tuple[Columns, Columns, Columns] | None:
    """Find queries, keys and values before their heads were split off."""
    queries, keys = scores.matmul.inputs
    if queries is None or keys is None:
        return None
    shapes = [static_shape(value) for value in (queries, keys, values)]
    if any(shape is None or shape[:-2] != (shapes[0] or ())[:-2] for shape in shapes):
        return None
    if math.prod((shapes[0] or ())[:-2]) != layout.batch * layout.heads:
        return None
    keyed = HeadLayout(layout.batch, layout.heads, (shapes[1] or ())[-1], layout.depth)
    query = find_columns(queries, layout, graph)
    key = find_columns(keys, keyed, graph, has_rows_last=True)
    value = find_columns(values, keyed, graph, may_scale=False)
    if query is None or key is None or value is None:
        return None
    if len({dtype_of(columns.source) for columns in (query, key, value)}) > 1:
        return None
    pairs = [(query, key), (query, value), (key, value)]
    clash = any(_clash(one, other, layout.width) for one, other in pairs)
    return None if clash else (query, key, value)


def _clash(one: Columns, other: Columns, width: int) -> bool:
    """True if one Split cannot give both: other rows, or only some columns in common."""
    if one.source is not other.source:
        return False
    return one.pitch != other.pitch or 0 < abs(one.offset - other.offset) < width


def find_removable(found: AttentionMatch) -> set[Node]:
    """Find the nodes that nothing needs any more once the result is replaced."""
    rest, gone, result = set(found.nodes), set[Node](), found.result
    is_growing = True
    while is_growing:
        dead = {node for node in rest if all(_is_needless(v, result, gone) for v in node.outputs)}
        rest -= dead
        gone |= dead
        is_growing = bool(dead)
    return gone


def _is_needless(value: Value, result: Value, gone: set[Node]) -> bool:
    if value is result:
        return True
    return not value.is_graph_output and all(user in gone for user, _ in value.uses)
