"""The names that are taken in a model, so that a rewrite can add nodes and values in O(1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...graph import Graph, Node

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
        self._count(graph)

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
            for values, nodes in _names_in(body):
                self._values.subtract(values)
                self._nodes.subtract(nodes)

    def claim_bodies(self, node: Node) -> None:
        """Count the names inside the bodies of a node, which keep the names that they have."""
        for body in node.bodies():
            self._count(body)

    def release_value(self, name: str) -> None:
        """Release the name of a value."""
        self._values[name] -= 1

    def _claim(self, taken: Counter[str], name: str) -> str:
        free = name
        while taken.get(free, 0) > 0:
            self._suffixes[name] += 1
            free = f"{name}_{self._suffixes[name]}"
        taken[free] = taken.get(free, 0) + 1
        return free

    def _count(self, graph: Graph) -> None:
        for values, nodes in _names_in(graph):
            self._values.update(values)
            self._nodes.update(nodes)


def _names_in(graph: Graph) -> Iterator[tuple[list[str], list[str]]]:
    """Walk a graph and its bodies, each with the names of its values and of its nodes."""
    values = [value.name for value in graph.inputs]
    values += [value.name for value in graph.initializers.values()]
    nodes: list[str] = []
    for node in graph.nodes:
        nodes.append(node.name)
        values += [value.name for value in node.outputs]
        for body in node.bodies():
            yield from _names_in(body)
    yield values, nodes
