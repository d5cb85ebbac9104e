"""Times of nodes over many runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..runtime.runs.bindings import NodeProfile

__all__ = ["NodeTime", "mean_node_times"]


@dataclass(frozen=True)
class NodeTime:
    """One executed node. ``share`` is its part of the time of all nodes, 0 to 1."""

    name: str
    op: str
    original_nodes: tuple[str, ...]
    mean_ms: float
    share: float


def mean_node_times(profiles: Iterable[Sequence[NodeProfile]]) -> list[NodeTime]:
    """Average each node over the runs in which it ran; slowest first, equals in running order.

    A node that runs several times in one run, as in a loop, counts with the sum of its times.
    """
    nodes: dict[str, NodeProfile] = {}
    total_s: dict[str, float] = {}
    run_count: dict[str, int] = {}
    for profile in profiles:
        for entry in profile:
            nodes.setdefault(entry.name, entry)
            total_s[entry.name] = total_s.get(entry.name, 0.0) + entry.real_time_s
        for name in {entry.name for entry in profile}:
            run_count[name] = run_count.get(name, 0) + 1
    mean_ms = {name: total_s[name] / run_count[name] * 1e3 for name in nodes}
    all_ms = sum(mean_ms.values())
    times = [
        NodeTime(
            name,
            entry.op,
            entry.original_nodes,
            mean_ms[name],
            mean_ms[name] / all_ms if all_ms else 0.0,
        )
        for name, entry in nodes.items()
    ]
    return sorted(times, key=lambda time: -time.mean_ms)
