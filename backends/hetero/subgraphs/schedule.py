"""In which order the subgraphs run; they are listed in the order in which they were selected."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

from ....errors import GraphError
from .selection import Subgraph

__all__ = ["execution_order"]

N = TypeVar("N", bound=Hashable)


def execution_order(
    subgraphs: Sequence[Subgraph[N]], edges: Iterable[tuple[N, N]], nodes: Iterable[N]
) -> list[int]:
    """Order the subgraphs topologically, ties by the smallest first member; return their indices.

    subgraphs, edges, nodes: the result of select_subgraphs and the graph that it was given. Two
    neighbours in the answer need not depend on each other, so this is one order among several.

    Raises GraphError if the subgraphs do not hold every node exactly once, or if they feed each
    other in a cycle; what select_subgraphs returns never does either. Pure; O(nodes + edges).
    """
    place = {node: number for number, node in enumerate(nodes)}
    owner = _owners(subgraphs, place)
    consumers: list[set[int]] = [set() for _ in subgraphs]
    for producer, consumer in edges:
        for end in (producer, consumer):
            if end not in owner:
                raise GraphError(
                    f"edge {producer!r} -> {consumer!r} names {end!r}, which is not among the "
                    f"{len(place)} nodes; give the edges from which the subgraphs were selected"
                )
        if owner[producer] != owner[consumer]:
            consumers[owner[producer]].add(owner[consumer])
    waits_for = [0] * len(subgraphs)
    for index in (index for targets in consumers for index in targets):
        waits_for[index] += 1

    first = [min(place[node] for node in subgraph.nodes) for subgraph in subgraphs]
    ready = [(first[index], index) for index, count in enumerate(waits_for) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heappop(ready)
        order.append(index)
        for target in consumers[index]:
            waits_for[target] -= 1
            if not waits_for[target]:
                heappush(ready, (first[target], target))
    if len(order) < len(subgraphs):
        stuck = sorted(set(range(len(subgraphs))) - set(order))
        raise GraphError(
            f"subgraphs {stuck} cannot be ordered, since some of them feed each other in a cycle; "
            "take the subgraphs from select_subgraphs, which never makes one"
        )
    return order


def _owners(subgraphs: Sequence[Subgraph[N]], place: dict[N, int]) -> dict[N, int]:
    """Return for every node the index of its subgraph; refuse what is no partition of the nodes."""
    owner: dict[N, int] = {}
    for index, subgraph in enumerate(subgraphs):
        if not subgraph.nodes:
            raise GraphError(f"subgraph {index} on {subgraph.device} has no node; leave it out")
        for node in subgraph.nodes:
            if node not in place:
                raise GraphError(
                    f"node {node!r} of subgraph {index} is not a node of the graph; give the "
                    "nodes from which the subgraphs were selected"
                )
            if node in owner:
                raise GraphError(
                    f"node {node!r} is twice in the subgraphs, in {owner[node]} and in {index}; "
                    "every node belongs to exactly one"
                )
            owner[node] = index
    missing = [node for node in place if node not in owner]
    if missing:
        raise GraphError(
            f"node {missing[0]!r} is in no subgraph ({len(missing)} such nodes); every node "
            "belongs to exactly one"
        )
    return owner
