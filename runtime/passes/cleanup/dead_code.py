"""Remove what nothing needs."""

from __future__ import annotations

from collections.abc import Iterator

from ...graph import Graph
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.node_traits import is_dead, is_unused
from ..rewriting.pass_base import Pass

__all__ = ["DeadCode"]


class DeadCode(Pass):
    """Remove nodes whose outputs nothing needs, and constants that nothing uses.

    One walk from the last node to the first is enough: what a removed node used is met later.
    """

    name = "dead code"
    cleans = True
    requires = frozenset({"topological order"})
    guarantees = frozenset({"no dead nodes", "no unused constants"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in reversed(list(graph.nodes)):
            if is_dead(node):
                yield GraphPatch(f"remove {node.op} {node.name!r}").remove(node)
        unused = [value for value in graph.initializers.values() if is_unused(value)]
        if unused:
            patch = GraphPatch(f"drop {len(unused)} unused constants")
            for value in unused:
                patch.drop_constant(value)
            yield patch
