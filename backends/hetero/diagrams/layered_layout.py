"""Places for boxes and arrows of a graph without cycles, from top to bottom. Pure.

Layers by longest path; an arrow over several layers passes through a narrow box in each, so that
it does not cross others' boxes; the order in a layer follows the neighbours (barycentre); last,
boxes move to where their neighbours are, as far as there is room. After Sugiyama, Tagawa and Toda
1981, "Methods for visual understanding of hierarchical system structures".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

__all__ = ["Layout", "Point", "layered_layout"]

Point = tuple[float, float]

SWEEPS = 8  # the order settles after a few; more changes nothing that one sees
GAP_X, GAP_Y = 22.0, 30.0
WAYPOINT_WIDTH = 8.0


@dataclass(frozen=True)
class Layout:
    """Top left corners of the boxes, for each edge the points that it passes, and the size."""

    places: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def layered_layout(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out boxes of the given (width, height); edges are (upper box, lower box), by number.

    Raises graphlib.CycleError if the edges make a cycle.
    """
    return _Arrangement(sizes, edges).layout()


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each box the length of the longest path that leads to it."""
    above: dict[int, set[int]] = {box: set() for box in range(count)}
    for source, target in edges:
        above[target].add(source)
    layers = [0] * count
    for box in TopologicalSorter(above).static_order():
        layers[box] = max((layers[upper] + 1 for upper in above[box]), default=0)
    return layers


class _Arrangement:
    """Boxes and waypoints in layers."""

    def __init__(self, sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> None:
        self._count = len(sizes)
        self._sizes = list(sizes)
        self._layer = _layers(len(sizes), edges)
        self._above: list[list[int]] = [[] for _ in sizes]
        self._below: list[list[int]] = [[] for _ in sizes]
        self._chains = [self._chain(source, target) for source, target in edges]
        depth = max(self._layer, default=-1) + 1
        self._rows: list[list[int]] = [[] for _ in range(depth)]
        for item, layer in enumerate(self._layer):
            self._rows[layer].append(item)
        self._x = [0.0] * len(self._sizes)

    def _chain(self, source: int, target: int) -> list[int]:
        chain = [source]
        for layer in range(self._layer[source] + 1, self._layer[target]):
            chain.append(len(self._sizes))
            self._sizes.append((WAYPOINT_WIDTH, 0.0))
            self._layer.append(layer)
            self._above.append([])
            self._below.append([])
        chain.append(target)
        for upper, lower in pairwise(chain):
            self._below[upper].append(lower)
            self._above[lower].append(upper)
        return chain

    def layout(self) -> Layout:
        for _ in range(SWEEPS):
            self._sort_rows(self._rows, self._above)
            self._sort_rows(self._rows[::-1], self._below)
        for row in self._rows:
            self._spread(row, lambda item: 0.0)
        for _ in range(SWEEPS):
            self._pull(self._rows, self._above)
            self._pull(self._rows[::-1], self._below)
        halves = [(x, size[0] / 2) for x, size in zip(self._x, self._sizes, strict=True)]
        left = min((x - half for x, half in halves), default=0.0)
        width = max((x + half for x, half in halves), default=0.0) - left
        self._x = [x - left for x in self._x]
        tops, heights = self._tops()
        places = tuple(
            (self._x[i] - self._sizes[i][0] / 2, tops[self._layer[i]]) for i in range(self._count)
        )
        height = tops[-1] + heights[-1] if tops else 0.0
        return Layout(places, self._routes(tops, heights), width, height)

    def _sort_rows(self, rows: Sequence[list[int]], near: Sequence[Sequence[int]]) -> None:
        place = {item: index for row in self._rows for index, item in enumerate(row)}
        for row in rows:
            centre = {
                item: sum(place[other] for other in near[item]) / len(near[item])
                if near[item]
                else float(place[item])
                for item in row
            }
            row.sort(key=centre.__getitem__)
            place.update((item, index) for index, item in enumerate(row))

    def _pull(self, rows: Sequence[list[int]], near: Sequence[Sequence[int]]) -> None:
        for row in rows:
            self._spread(
                row,
                lambda item: (
                    sum(self._x[other] for other in near[item]) / len(near[item])
                    if near[item]
                    else self._x[item]
                ),
            )

    def _spread(self, row: Sequence[int], wanted: Callable[[int], float]) -> None:
        """Put the boxes of a row near where they are wanted, in order and without overlap.

        Filled from the left they lie too far right, from the right too far left; both are without
        overlap, and so is their mean.
        """
        goals = [wanted(item) for item in row]
        from_left, from_right = goals[:], goals[:]
        for i in range(1, len(row)):
            least = from_left[i - 1] + self._distance(row[i - 1], row[i])
            from_left[i] = max(from_left[i], least)
        for i in range(len(row) - 2, -1, -1):
            most = from_right[i + 1] - self._distance(row[i], row[i + 1])
            from_right[i] = min(from_right[i], most)
        for i, item in enumerate(row):
            self._x[item] = (from_left[i] + from_right[i]) / 2

    def _distance(self, left: int, right: int) -> float:
        return (self._sizes[left][0] + self._sizes[right][0]) / 2 + GAP_X

    def _tops(self) -> tuple[list[float], list[float]]:
        heights = [max(self._sizes[item][1] for item in row) for row in self._rows]
        tops, top = [], 0.0
        for height in heights:
            tops.append(top)
            top += height + GAP_Y
        return tops, heights

    def _routes(
        self, tops: Sequence[float], heights: Sequence[float]
    ) -> tuple[tuple[Point, ...], ...]:
        routes = []
        for chain in self._chains:
            source, target = chain[0], chain[-1]
            top = tops[self._layer[source]]
            points = [(self._port(source, chain[1], self._below), top + self._sizes[source][1])]
            if self._sizes[source][1] < heights[self._layer[source]]:
                points.append((points[0][0], top + heights[self._layer[source]]))
            for item in chain[1:-1]:
                top = tops[self._layer[item]]
                points += [(self._x[item], top), (self._x[item], top + heights[self._layer[item]])]
            points.append((self._port(target, chain[-2], self._above), tops[self._layer[target]]))
            routes.append(tuple(points))
        return tuple(routes)

    def _port(self, item: int, other: int, near: Sequence[Sequence[int]]) -> float:
        """Spread the arrows of one side over its width, in the order of their other ends."""
        others = sorted(near[item], key=self._x.__getitem__)
        width = min(self._sizes[item][0] * 0.6, 24.0 * (len(others) - 1))
        share = others.index(other) / (len(others) - 1) if len(others) > 1 else 0.5
        return self._x[item] + (share - 0.5) * width
