"""The names that are taken in a model, so that a rewrite can add nodes and values in O(1)."""

from __future__ import annotations

from collections import Counter

from ..graph import Graph, Node

__all__ = ["NameTable"]


class NameTable:
    """Counts the node and value names of a graph and of all bodies inside.

    Names are kept apart over the whole model, not only where a graph needs it: a body then never
    hides a name of the graph around it.
    """

    def __init__(self, graph: Graph) -> None:
        self._nodes: Counter[str] = Counter()
        self._values: Counter[str] = Counter()
        self._suffixes: Counter[str] = Counter()
        self._count_graph(graph, 1)

    def claim_node(self, name: str) -> str:
        """Take this name for a node, or the first free one that is this name with a number."""
        return self._claim(self._nodes, name)

    def claim_value(self, name: str) -> str:
        """Take this name for a value, or the first free one that is this name with a number."""
        return self._claim(self._values, name)

    def release_node(self, node: Node) -> None:
        """Release the names of a node and of its bodies; those of its outputs stay taken."""
        self._nodes[node.name] -= 1
        for body in node.bodies():
            self._count_graph(body, -1)

    def claim_bodies(self, node: Node) -> None:
        """Count the names inside the bodies of a node, which keep the names that they have."""
        for body in node.bodies():
            self._count_graph(body, 1)

    def release_value(self, name: str) -> None:
        """Release the name of a value."""
        self._values[name] -= 1

    def _claim(self, taken: Counter[str], name: str) -> str:
        free = name
        while taken[free] > 0:
            self._suffixes[name] += 1
            free = f"{name}_{self._suffixes[name]}"
        taken[free] += 1
        return free

    def _count_graph(self, graph: Graph, step: int) -> None:
        for value in (*graph.inputs, *graph.initializers.values()):
            self._values[value.name] += step
        for node in graph.nodes:
            self._nodes[node.name] += step
            for value in node.outputs:
                self._values[value.name] += step
            for body in node.bodies():
                self._count_graph(body, step)
