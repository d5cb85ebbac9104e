"""Clock readings of a run as the times of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....runtime.runs.bindings import NodeProfile
from ..plans.plan import Plan

__all__ = ["node_times"]


def node_times(plan: Plan, readings: Sequence[int]) -> Iterator[NodeProfile]:
    """Return the time of each step; readings are one before the first step and one after each.

    A fused node is called after the first of its original nodes. Implementations are oneDNN's own
    names, ``native:<kernel>`` or ``numpy``; layouts are in oneDNN's notation.
    """
    for index, step in enumerate(plan.steps):
        origin = step.origin
        yield NodeProfile(
            origin.original_nodes[0] if origin.original_nodes else origin.name,
            origin.op,
            origin.original_nodes,
            readings[index],
            readings[index + 1],
            step.implementation,
            step.writes[0].layout.tag,
        )
