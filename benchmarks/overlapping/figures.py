"""What the times of a pipeline say: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

__all__ = [
    "Needs",
    "Services",
    "TooShortError",
    "alone_ms",
    "longest_path",
    "overlap",
    "slowest_ms",
]

Needs = Mapping[str, Sequence[str]]
"""What each node takes, in order of execution; "x" is the input."""

Services = Mapping[str, Sequence[tuple[int, int]]]
"""For each node when its calls ended and how long they took, in nanoseconds, in their order."""


class TooShortError(Exception):
    """A window in which too little ended to tell anything."""


_TOO_SHORT = "a turn was over before two requests had ended: give it more --seconds"


def longest_path(needs: Needs) -> list[str]:
    """Find the nodes of a longest way through the graph."""
    paths: dict[str, list[str]] = {"x": []}
    for node, sources in needs.items():
        paths[node] = [*max((paths[source] for source in sources), key=len), node]
    return max(paths.values(), key=len)


def slowest_ms(services: Services, from_ns: int, until_ns: int) -> float:
    """Give the mean service time of the slowest node, of the calls that ended in between.

    Raises TooShortError if none of a node's calls did.
    """
    taken_ns = [
        [taken_ns for ended_ns, taken_ns in calls if from_ns <= ended_ns <= until_ns]
        for calls in services.values()
    ]
    if not all(taken_ns):
        raise TooShortError(_TOO_SHORT)
    return max(map(fmean, taken_ns)) / 1e6


def overlap(ends_ns: Sequence[int], services: Services, from_ns: int, until_ns: int) -> float:
    """Give the throughput in a window over what the slowest node allows; 1 is full overlap.

    ``ends_ns``: when requests ended. Raises TooShortError unless two of them ended in the window.
    """
    inside = sorted(end_ns for end_ns in ends_ns if from_ns <= end_ns <= until_ns)
    if len(inside) < 2:
        raise TooShortError(_TOO_SHORT)
    interval_ms = (inside[-1] - inside[0]) / (len(inside) - 1) / 1e6
    return slowest_ms(services, from_ns, until_ns) / interval_ms


def alone_ms(latencies_ns: Sequence[int], services: Services, needs: Needs) -> float:
    """Give the median of latency less the service times on the longest way, one by one.

    The n-th call of each node belongs to the n-th request. A node starts with the last of its
    sources, so each way through the graph takes at least its own services.
    """
    costs = []
    for index, latency_ns in enumerate(latencies_ns):
        ends_ns = {"x": 0}
        for node, sources in needs.items():
            ends_ns[node] = max(ends_ns[source] for source in sources) + services[node][index][1]
        costs.append(latency_ns - max(ends_ns.values()))
    return median(costs) / 1e6
