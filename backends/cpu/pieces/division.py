"""Which nodes of a graph are planned together, and what stands between: a pure decision.

Theory of operation. Each value has a level: how many steps lie on the longest way to it. Planned
nodes of one level may form one piece, as a way out of a level never leads back. On level 0 of a
main graph all is planned. Behind a step, and in a body, sizes change from run to run, and a plan
is for given sizes: there only what numpy computes slowly is planned, with what follows from it, and
the rest are steps, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....runtime.graph import Graph, Node, Value

__all__ = ["Piece", "divide"]


class Piece(NamedTuple):
    """Nodes that are planned together, in topological order, and how many steps come before."""

    nodes: tuple[Node, ...]
    level: int


def divide(
    graph: Graph,
    is_stepped: Callable[[Node], bool],
    is_worth_a_plan: Callable[[Node], bool],
    *,
    in_body: bool,
) -> list[Piece | Node]:
    """Return pieces and steps in an order in which they can run. O(nodes + uses).

    What is constant is in no piece and no step.
    """
    levels: dict[Value, int] = {}
    planned: dict[int, list[Node]] = {}
    stepped: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if all(value.is_constant for value in node.outputs):
            continue
        level = max((levels.get(value, 0) for value in node.dependencies()), default=0)
        is_step = is_stepped(node)
        levels.update(dict.fromkeys(node.outputs, level + is_step))
        (stepped if is_step else planned).setdefault(level, []).append(node)
    order: list[Piece | Node] = []
    for level in sorted({*planned, *stepped}):
        nodes = planned.get(level, [])
        is_free = in_body or level > 0
        chosen = _with_followers(nodes, is_worth_a_plan) if is_free else set(nodes)
        order += [node for node in nodes if node not in chosen]
        if chosen:
            order.append(Piece(tuple([node for node in nodes if node in chosen]), level))
        order += stepped.get(level, [])
    return order


def _with_followers(nodes: list[Node], is_worth_a_plan: Callable[[Node], bool]) -> set[Node]:
    """Return the nodes that are worth a plan, and those of the others that use what they make.

    What these use in turn is computed before: it may have as many sizes as there are steps.
    """
    found: set[Node] = set()
    for node in nodes:
        makers = (value.producer for value in node.inputs if value is not None)
        if any(maker in found for maker in makers) or is_worth_a_plan(node):
            found.add(node)
    return found
