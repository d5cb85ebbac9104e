"""Which nodes of a graph are planned together, and what stands between: a pure decision.

Theory of operation. Each value has a level: how many steps lie on the longest way to it. Planned
nodes of one level may form one piece, as a way out of a level never leads back. On level 0 of a
main graph all is planned. Behind a step, and in a body, sizes change from run to run, and a plan
is for given sizes: there only what numpy computes slowly is planned, with what follows from it, and
the rest are steps, too. So is what a plan leaves to numpy: a step takes views as they lie, such as
indices that an Expand repeats, and a plan would have them copied.
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
    is_left_to_numpy: Callable[[Node], bool],
    *,
    in_body: bool,
) -> list[Piece | Node]:
    """Return pieces and steps in an order in which they can run. O(nodes + uses).

    What is constant is in no piece and no step. What comes before a node that is worth a plan is
    not drawn in: it may have as many sizes as there are steps.
    """
    levels: dict[Value, int] = {}
    planned: dict[int, list[Node]] = {}
    stepped: dict[int, list[Node]] = {}
    pieces: dict[int, set[Node]] = {}
    for node in graph.nodes:
        if all(value.is_constant for value in node.outputs):
            continue
        level = max((levels.get(value, 0) for value in node.dependencies()), default=0)
        piece = pieces.setdefault(level, set())
        is_free = in_body or level > 0
        follows = any(value.producer in piece for value in node.inputs if value is not None)
        is_step = is_stepped(node) or (is_free and follows and is_left_to_numpy(node))
        if not is_step and (not is_free or follows or is_worth_a_plan(node)):
            piece.add(node)
        levels.update(dict.fromkeys(node.outputs, level + is_step))
        (stepped if is_step else planned).setdefault(level, []).append(node)
    order: list[Piece | Node] = []
    for level in sorted({*planned, *stepped}):
        nodes = planned.get(level, [])
        chosen = pieces[level]
        order += [node for node in nodes if node not in chosen]
        if chosen:
            order.append(Piece(tuple([node for node in nodes if node in chosen]), level))
        order += stepped.get(level, [])
    return order
