"""Walks over graphs."""

from __future__ import annotations

from collections.abc import Iterator

from .graph import Graph, Node, Value

__all__ = ["BODIES", "all_nodes", "all_values", "constant_values"]

BODIES: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "If"): ("then_branch", "else_branch"),
    ("", "Loop"): ("body",),
    ("", "Scan"): ("body",),
    ("", "SequenceMap"): ("body",),
}
"""The attributes in which operators of control flow have their graphs."""


def all_nodes(graph: Graph) -> Iterator[Node]:
    """Walk the nodes of a graph and of all bodies inside, a node before its bodies."""
    for node in graph.nodes:
        yield node
        if node.attributes:
            for body in node.bodies():
                yield from all_nodes(body)


def all_values(graph: Graph) -> Iterator[Value]:
    """Walk the inputs of a graph and of all bodies inside, and what their nodes make."""
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs
        if node.attributes:
            for body in node.bodies():
                yield from all_values(body)


def constant_values(graph: Graph) -> list[Value]:
    """List the constants that nodes of this graph use directly or return, each once."""
    found: dict[Value, None] = {}
    for node in graph.nodes:
        for value in node.dependencies():
            if value.is_constant:
                found[value] = None
    found.update(dict.fromkeys(value for value in graph.outputs if value.is_constant))
    return list(found)
