"""What an attention reads: matmuls of one value as one, whose columns it finds by their places.

A device's matmul of one long row of columns costs one launch and reads its left side once. The
heads need no copy of their part of it: they lie there with a longer way from row to row.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.fusion.joined_matmuls import (
    JoinableMatmul,
    join_matmuls,
    match_matmul,
    may_join,
)
from ....runtime.passes.rewriting.matching import (
    fuse,
    is_standard,
    made_by,
    only_user,
    static_shape,
)
from ..elementwise.fused_step import ACCELERATOR_DOMAIN

__all__ = ["AttentionMatmulFusion", "PackedAttention"]

_PARTS = 3
"""Queries, keys and values."""


class AttentionMatmulFusion(Pass):
    """Join the matmuls that make an attention's queries, keys and values, and split the result.

    Those of one value with constant matrices, a bias after them included, that nothing else uses:
    all three, or keys and values alone where the queries are made of another value. ``cache`` makes
    the joined constants, so that all plans have the same arrays.
    """

    name = "attention matmul fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"Attention"})

    def __init__(self, cache: ConstantCache) -> None:
        self._cache = cache

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is graph and _is_attention(node):
                for group in _groups(node):
                    yield join_matmuls(group, self._cache)


class PackedAttention(Pass):
    """Make an attention read what a Split gave it where that lies in the value that was split.

    Only a Split of the last axis of (batch, rows, columns) whose parts nothing else uses. The node
    then has the attribute ``columns``: the first column of queries, keys and values in the values
    that it reads, which may be one.
    """

    name = "packed attention"
    requires = frozenset({"topological order"})
    enters_bodies = False
    wanted_ops = frozenset({"Attention"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not _is_attention(node) or "columns" in node.attributes:
                continue
            parts = [_part(value, node) for value in node.inputs[:_PARTS]]
            splits = [part[2] for part in parts if part[2] is not None]
            if splits:
                inputs = [part[0] for part in parts] + list(node.inputs[_PARTS:])
                attributes = {**node.attributes, "columns": [part[1] for part in parts]}
                yield fuse(
                    [*splits, node],
                    node,
                    node.op_type,
                    inputs,
                    attributes,
                    domain=ACCELERATOR_DOMAIN,
                )


def _is_attention(node: Node) -> bool:
    return node.domain == ACCELERATOR_DOMAIN and node.op_type == "Attention"


def _groups(node: Node) -> list[list[JoinableMatmul]]:
    groups: dict[Value, list[JoinableMatmul]] = {}
    for value in node.inputs[:_PARTS]:
        matmul = _matmul_behind(value, node)
        x = None if matmul is None else matmul.node.inputs[0]
        if matmul is None or x is None:
            continue
        group = groups.setdefault(x, [])
        if not group or may_join(group[0], matmul):
            group.append(matmul)
    return [group for group in groups.values() if len(group) > 1]


def _matmul_behind(value: Value | None, user: Node) -> JoinableMatmul | None:
    """Return the matmul that makes a value for this user alone."""
    if value is None or only_user(value) is not user or value.producer is None:
        return None
    maker = value.producer
    makers = [maker]
    if is_standard(maker, "Add"):
        makers = [found for item in maker.inputs if (found := made_by(item, "MatMul")) is not None]
    matmuls = (match_matmul(found) for found in makers)
    return next((item for item in matmuls if item is not None and item.last is maker), None)


def _part(value: Value | None, node: Node) -> tuple[Value | None, int, Node | None]:
    """Return where one part lies, its first column there, and the Split that goes."""
    split = made_by(value, "Split")
    packed = None if split is None else split.inputs[0]
    if split is None or packed is None or not have_one_affinity((split, node)):
        return value, 0, None
    axis = int(split.attributes.get("axis", 0))
    has_rows = len(static_shape(packed) or ()) == _PARTS and axis in (-1, _PARTS - 1)
    users = {user for made in split.outputs for user, _ in made.uses}
    if not has_rows or users != {node} or any(made.is_graph_output for made in split.outputs):
        return value, 0, None
    column = 0
    for made in split.outputs:
        if made is value:
            return packed, column, split
        shape = static_shape(made)
        if shape is None:
            break
        column += shape[-1]
    return value, 0, None
