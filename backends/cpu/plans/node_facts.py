"""What a plan has made of each node: its implementation, and how its result lies in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ....runtime.graph import Graph, Node, copy_graph
from .plan import Plan

__all__ = ["NodeFacts", "described_graph", "node_facts"]


class NodeFacts(NamedTuple):
    """``implementation`` of all its steps, ``layout`` and ``precision`` of its first result.

    A node without a step is a ``view`` of what it reads. Layouts are in oneDNN's notation.
    """

    implementation: str
    layout: str
    precision: str


def node_facts(plan: Plan) -> dict[str, NodeFacts]:
    """List the facts by name of the executed node, fused ones included, in order."""
    implementations: dict[str, dict[str, None]] = {}
    for step in plan.steps:
        if not step.origin.is_delivery:
            implementations.setdefault(step.origin.name, {})[step.implementation] = None
    return {
        node.name: _facts_of(node, plan, implementations.get(node.name, {}))
        for node in plan.graph.nodes
    }


def _facts_of(node: Node, plan: Plan, implementations: Mapping[str, None]) -> NodeFacts:
    layout = next(
        (plan.layouts[value.name] for value in node.outputs if value.name in plan.layouts), None
    )
    if layout is None:  # its results were known when the plan was made
        return NodeFacts("constant", "", "")
    return NodeFacts("+".join(implementations) or "view", layout.tag, layout.dtype.label)


def described_graph(plan: Plan) -> Graph:
    """Copy the plan's graph; the metadata of each node says what the plan has made of it.

    Keys: ``implementation``, ``layout``, ``precision`` and ``subgraph_id``, the id of the plan.
    """
    facts = node_facts(plan)
    copied = copy_graph(plan.graph)
    for node in copied.nodes:
        found = facts[node.name]
        node.metadata.update(
            implementation=found.implementation,
            layout=found.layout,
            precision=found.precision,
            subgraph_id=plan.id,
        )
    return copied
