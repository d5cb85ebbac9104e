"""Orders and walks over graphs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from ...errors import GraphError
from .graph import Graph, Node, Value

__all__ = ["all_nodes", "constant_values", "sort_topologically"]


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


def sort_topologically(graph: Graph) -> None:
    """Put the nodes in topological order, as near to their present order as that allows.

    Bodies are left alone. Raises GraphError, naming nodes on it, for a cycle. O((V+E) log V).
    """
    nodes = list(graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    missing: dict[Node, int] = {}
    followers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        producers = {value.producer for value in node.dependencies()} & place.keys()
        missing[node] = len(producers)
        for producer in producers:
            followers[producer].append(node)  # type: ignore[index]
    ready = [place[node] for node in nodes if not missing[node]]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for follower in followers[node]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, place[follower])
    if len(order) < len(nodes):
        stuck = [node.name for node in nodes if missing[node]][:5]
        raise GraphError(f"graph {graph.name!r} has a cycle; nodes on or behind it: {stuck}")
    if order == nodes:
        return
    for node in nodes:
        graph.unlink(node)
    for node in order:
        graph.append(node)
