"""How many runs waited for a device at each moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..recorder import Span
from .runs import ARRIVAL, TracedRun

__all__ = ["Depth", "queue_depths"]

SLOT, QUEUE = 1, 2


class Depth(NamedTuple):
    """How many runs want a device from ``time_ns`` on: without a slot yet, and in its queues."""

    time_ns: int
    slot: int
    queue: int


def queue_depths(runs: Iterable[TracedRun], spans: Sequence[Span]) -> dict[str, list[Depth]]:
    """Give each device, by name, the steps of its depth, which ends at 0.

    A run wants the device of its next stage from the moment in which it waits for nothing else. It
    is without a slot until that stage is queued, and then in the queue of the stage's executor.
    """
    changes: dict[str, list[tuple[int, int, int]]] = {}
    for run in runs:
        for index, previous in zip(run.spans, run.before, strict=True):
            span = spans[index]
            since_ns = run.arrived_ns if previous == ARRIVAL else spans[previous].ended_ns
            found = changes.setdefault(span.device, [])
            if since_ns < span.queued_ns:
                found += [(since_ns, SLOT, 1), (span.queued_ns, SLOT, -1)]
            if span.queued_ns < span.started_ns:
                found += [(span.queued_ns, QUEUE, 1), (span.started_ns, QUEUE, -1)]
    return {device: _steps(found) for device, found in changes.items()}


def _steps(changes: list[tuple[int, int, int]]) -> list[Depth]:
    steps: list[Depth] = []
    depth = {SLOT: 0, QUEUE: 0}
    changes.sort()
    for place, (time_ns, what, change) in enumerate(changes):
        depth[what] += change
        if place + 1 < len(changes) and changes[place + 1][0] == time_ns:
            continue
        step = Depth(time_ns, depth[SLOT], depth[QUEUE])
        if not steps or steps[-1][1:] != step[1:]:
            steps.append(step)
    return steps
