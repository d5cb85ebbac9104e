"""Where the time of one run went. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..recorder import Span
from .runs import ARRIVAL, TracedRun

__all__ = ["PathPart", "critical_path", "slowest_of"]


@dataclass(frozen=True)
class PathPart:
    """One span of a critical path, by its number in the trace, and the time since the part before.

    ``slot_ns``: until it was queued, which is the wait for a slot and the hand-over. ``queue_ns``:
    in its executor's queue. ``service_ns``: while it ran.
    """

    span: int
    slot_ns: int
    queue_ns: int
    service_ns: int


def critical_path(run: TracedRun, spans: Sequence[Span]) -> tuple[PathPart, ...]:
    """Follow what was waited for from the span that ended last back to the arrival.

    The parts add up to the run's latency. Branches that others waited longer for are left out:
    making them faster would not have made the run faster.
    """
    before = dict(zip(run.spans, run.before, strict=True))
    index = max(run.spans, key=lambda item: spans[item].ended_ns)
    parts = []
    while index != ARRIVAL:
        span, previous = spans[index], before[index]
        since_ns = run.arrived_ns if previous == ARRIVAL else spans[previous].ended_ns
        parts.append(
            PathPart(
                span=index,
                slot_ns=span.queued_ns - since_ns,
                queue_ns=span.started_ns - span.queued_ns,
                service_ns=span.ended_ns - span.started_ns,
            )
        )
        index = previous
    return tuple(reversed(parts))


def slowest_of(runs: Iterable[TracedRun]) -> TracedRun | None:
    """Return the run that took longest, the earliest on a tie; incomplete ones only if all are."""
    return max(runs, key=lambda run: (run.is_complete, run.latency_ns), default=None)
