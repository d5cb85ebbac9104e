"""Matmuls of one value with several weights as one matmul."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.fusion.joined_matmuls import (
    JoinableMatmul,
    join_matmuls,
    match_matmul,
    may_join,
)
from ....runtime.passes.rewriting.matching import is_standard
from ..onednn.post_ops import CPU_DOMAIN

__all__ = ["SharedInputFusion"]


class SharedInputFusion(Pass):
    """Multiply by the queries', keys' and values' weights at once, and split the result.

    Also for other matmuls with constant matrices that share their left side, a bias after them
    included. Not joined are matmuls with an attention between them: those of different layers with
    one encoder's output would all have to be kept at once. ``cache`` makes the joined weights, so
    that all plans have the same array.
    """

    name = "shared input fusion"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset({"MatMul"})

    def __init__(self, cache: ConstantCache) -> None:
        self._cache = cache

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for group in _groups(graph):
            yield join_matmuls(group, self._cache)


def _groups(graph: Graph) -> Iterator[list[JoinableMatmul]]:
    """Collect matmuls of one value, up to the next node that multiplies two computed values."""
    open_groups: dict[Value, list[JoinableMatmul]] = {}
    for node in list(graph.nodes):
        if _is_attending(node):
            yield from _worthwhile(open_groups)
            open_groups = {}
            continue
        matmul = match_matmul(node)
        x = node.inputs[0] if matmul is not None else None
        if matmul is None or x is None:
            continue
        group = open_groups.setdefault(x, [])
        if not group or may_join(group[0], matmul):
            group.append(matmul)
    yield from _worthwhile(open_groups)


def _worthwhile(groups: dict[Value, list[JoinableMatmul]]) -> Iterator[list[JoinableMatmul]]:
    return (group for group in groups.values() if len(group) > 1)


def _is_attending(node: Node) -> bool:
    if node.op_type == "Attention" and node.domain in ("", CPU_DOMAIN):
        return True
    values = [value for value in node.inputs if value is not None]
    return is_standard(node, "MatMul") and not any(value.is_constant for value in values)
