"""Times of nodes over many runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.runs.bindings import NodeProfile

__all__ = ["NodeTime", "NodeTimes"]


@dataclass(frozen=True)
class NodeTime:
    """One executed node. ``share`` is its part of the time of all nodes, 0 to 1.

    ``implementation`` is what the device calls that which computed it in its first run.
    """

    name: str
    op: str
    original_nodes: tuple[str, ...]
    mean_ms: float
    share: float
    implementation: str = ""


class NodeTimes:
    """Sums of the times of each node over runs; what it takes does not grow with their number."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeProfile] = {}
        self._total_s: dict[str, float] = {}
        self._run_counts: dict[str, int] = {}

    def add(self, profile: Sequence[NodeProfile]) -> None:
        """Add one run."""
        for entry in profile:
            self._nodes.setdefault(entry.name, entry)
            self._total_s[entry.name] = self._total_s.get(entry.name, 0.0) + entry.real_time_s
        for name in {entry.name for entry in profile}:
            self._run_counts[name] = self._run_counts.get(name, 0) + 1

    def means(self) -> list[NodeTime]:
        """Average each node over the runs in which it ran; slowest first, equals in running order.

        A node that runs several times in one run, as in a loop, counts with the sum of its times.
        """
        mean_ms = {name: self._total_s[name] / self._run_counts[name] * 1e3 for name in self._nodes}
        all_ms = sum(mean_ms.values())
        times = [
            NodeTime(
                name,
                entry.op,
                entry.original_nodes,
                mean_ms[name],
                mean_ms[name] / all_ms if all_ms else 0.0,
                entry.implementation,
            )
            for name, entry in self._nodes.items()
        ]
        return sorted(times, key=lambda time: -time.mean_ms)
