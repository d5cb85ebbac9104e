"""Spans: what ran where and when, recorded always.

A span is a plain tuple in a bounded ring, and a tally per stage is kept for ``statistics``; both
together cost well under a microsecond a stage.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..executors import Lane
    from .pipeline import Stage

__all__ = ["Span", "SpanRecorder", "StageTally"]

RING_SPANS = 65_536  # about 10 MB when full: a minute of a thousand requests/s


class Span(NamedTuple):
    """One stage of one run. Times are ``time.perf_counter_ns``; the wait is started - queued."""

    run_id: int
    stage: str
    executor: str
    lane: str
    queued_ns: int
    started_ns: int
    ended_ns: int


@dataclass
class StageTally:
    """How often a stage ran on an executor, and for how long."""

    stage: str
    executor: str
    lane_count: int = 0
    count: int = 0
    busy_ns: int = 0
    queued_ns: int = 0


class SpanRecorder:
    """The ring of one network, and its tallies. Thread-safe."""

    def __init__(self, capacity: int = RING_SPANS) -> None:
        self._ring: deque[tuple[int, str, str, str, int, int, int]] = deque(maxlen=capacity)
        self._tallies: dict[tuple[str, str], StageTally] = {}
        self._lanes: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def record(
        self, run_id: int, stage: Stage, lane: Lane, queued_ns: int, started_ns: int, ended_ns: int
    ) -> None:
        """Note that a stage has run; called by runs only."""
        name, executor = stage.name, stage.executor.name
        self._ring.append((run_id, name, executor, lane.name, queued_ns, started_ns, ended_ns))
        with self._lock:
            tally = self._tallies.get((name, executor))
            if tally is None:
                tally = self._tallies[name, executor] = StageTally(name, executor)
            tally.count += 1
            tally.busy_ns += ended_ns - started_ns
            tally.queued_ns += started_ns - queued_ns
            lanes = self._lanes.get(executor)
            if lanes is None:
                lanes = self._lanes[executor] = set()
            lanes.add(lane.name)

    def spans(self) -> list[Span]:
        """Copy the ring, oldest first."""
        return [Span(*fields) for fields in list(self._ring)]

    def tallies(self) -> list[StageTally]:
        """Copy the tallies, in the order in which stages first ran."""
        with self._lock:
            return [
                StageTally(
                    tally.stage,
                    tally.executor,
                    len(self._lanes[tally.executor]),
                    tally.count,
                    tally.busy_ns,
                    tally.queued_ns,
                )
                for tally in self._tallies.values()
            ]


def busy_shares(
    tallies: list[StageTally], elapsed_ns: int, lane_counts: Mapping[str, int]
) -> dict[str, float]:
    """Give each executor the share of the elapsed time in which its lanes were busy, 0 to 1."""
    busy: dict[str, int] = {}
    for tally in tallies:
        busy[tally.executor] = busy.get(tally.executor, 0) + tally.busy_ns
    return {
        executor: min(1.0, busy_ns / (elapsed_ns * max(1, lane_counts.get(executor, 1))))
        for executor, busy_ns in busy.items()
        if elapsed_ns > 0
    }
