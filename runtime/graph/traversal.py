"""Walks over graphs."""

from __future__ import annotations

from collections.abc import Iterator

from .graph import Graph, Node, Value

__all__ = ["all_nodes", "constant_values"]


def all_nodes(graph: Graph) -> Iterator[Node]:
    """Walk the nodes of a graph and of all bodies inside, a node before its bodies."""
    for node in graph.nodes:
        yield node
        for body in node.bodies():
            yield from all_nodes(body)


def constant_values(graph: Graph) -> list[Value]:
    """List the constants that nodes of this graph use directly or return, each once."""
    found: dict[Value, None] = {}
    for node in graph.nodes:
        for value in node.dependencies():
            if value.is_constant:
                found[value] = None
    found.update(dict.fromkeys(value for value in graph.outputs if value.is_constant))
    return list(found)
