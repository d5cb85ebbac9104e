"""The cheapest way to divide a graph between two ends. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["MinimumCut"]


@dataclass
class _Arc:
    """What can still flow along an arc; ``back`` is the arc of the other direction."""

    end: int
    room: int
    back: int


class MinimumCut:
    """Points between a source and a sink, and what it costs to have two of them on either side.

    Costs are integers. Not thread-safe. Source: Dinic's algorithm, which saturates all shortest
    ways at once; O(points^2 * arcs) at worst, and near linear on the long thin graphs of networks.
    """

    def __init__(self, source: Hashable, sink: Hashable) -> None:
        self._numbers: dict[Hashable, int] = {source: 0, sink: 1}
        self._arcs: list[list[_Arc]] = [[], []]

    def add(self, near: Hashable, far: Hashable, cost: int) -> None:
        """Add a cost for ``near`` on the source's side and ``far`` on the sink's."""
        a, b = self._number(near), self._number(far)
        if a == b or not cost:
            return
        self._arcs[a].append(_Arc(b, cost, len(self._arcs[b])))
        self._arcs[b].append(_Arc(a, 0, len(self._arcs[a]) - 1))

    def near_side(self) -> set[Hashable]:
        """Find the points on the source's side of the cheapest cut, as few as it allows."""
        while True:
            levels = self._levels()
            if levels[1] < 0:
                return {point for point, number in self._numbers.items() if levels[number] >= 0}
            starts = [0] * len(self._arcs)
            while self._push(levels, starts):
                pass

    def _number(self, point: Hashable) -> int:
        if point not in self._numbers:
            self._numbers[point] = len(self._arcs)
            self._arcs.append([])
        return self._numbers[point]

    def _levels(self) -> list[int]:
        """Count the arcs to each point, by the shortest way with room; -1 without one."""
        levels = [-1] * len(self._arcs)
        levels[0] = 0
        waiting = deque([0])
        while waiting:
            point = waiting.popleft()
            for arc in self._arcs[point]:
                if arc.room and levels[arc.end] < 0:
                    levels[arc.end] = levels[point] + 1
                    waiting.append(arc.end)
        return levels

    def _push(self, levels: list[int], starts: list[int]) -> int:
        """Send as much as fits along one shortest way; ``starts`` skips arcs that lead nowhere."""
        way: list[_Arc] = []
        point = 0
        while point != 1:
            arcs = self._arcs[point]
            while starts[point] < len(arcs):
                arc = arcs[starts[point]]
                if arc.room and levels[arc.end] == levels[point] + 1:
                    break
                starts[point] += 1
            if starts[point] < len(arcs):
                way.append(arcs[starts[point]])
                point = way[-1].end
            elif not way:
                return 0
            else:
                back = way.pop()
                point = self._arcs[back.end][back.back].end
                starts[point] += 1
        amount = min(arc.room for arc in way)
        for arc in way:
            arc.room -= amount
            self._arcs[arc.end][arc.back].room += amount
        return amount
