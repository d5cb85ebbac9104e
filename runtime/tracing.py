"""Spans: what ran where and when, recorded always.

A span is a plain tuple in a bounded ring. A tally per stage is kept for ``statistics``: spans are
added to it many at a time, so that a stage pays for two appends and no lock.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..executors import Lane
    from .pipeline import Stage

__all__ = ["Span", "SpanRecorder", "StageTally"]

COUNT_AT_SPANS = 1024  # a fifth of a millisecond's work, and 150 KB
RING_SPANS = 65_536  # about 10 MB when full: a minute of a thousand requests/s


class Span(NamedTuple):
    """One stage of one run. Times are ``time.perf_counter_ns``; the wait is started - queued.

    ``subgraph`` is the id of the compiled plan that ran, where the device has several.
    """

    run_id: int
    stage: str
    executor: str
    lane: str
    queued_ns: int
    started_ns: int
    ended_ns: int
    subgraph: str = ""


_Fields = tuple[int, str, str, str, int, int, int, str]


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
        self._ring: deque[_Fields] = deque(maxlen=capacity)
        self._uncounted: deque[_Fields] = deque()
        self._tallies: dict[tuple[str, str], StageTally] = {}
        self._lanes: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def record(
        self, run_id: int, stage: Stage, lane: Lane, queued_ns: int, started_ns: int, ended_ns: int
    ) -> None:
        """Note that a stage has run; called by runs only."""
        executor, part = stage.executor.name, "" if stage.part is None else stage.part()
        span = (run_id, stage.name, executor, lane.name, queued_ns, started_ns, ended_ns, part)
        self._ring.append(span)
        self._uncounted.append(span)
        if len(self._uncounted) >= COUNT_AT_SPANS:
            with self._lock:
                self._count()

    def _count(self) -> None:
        """Add what was recorded since the last time to the tallies."""
        for _ in range(len(self._uncounted)):
            _, stage, executor, lane, queued_ns, started_ns, ended_ns, _ = self._uncounted.popleft()
            tally = self._tallies.get((stage, executor))
            if tally is None:
                tally = self._tallies[stage, executor] = StageTally(stage, executor)
                self._lanes.setdefault(executor, set())
            tally.count += 1
            tally.busy_ns += ended_ns - started_ns
            tally.queued_ns += started_ns - queued_ns
            self._lanes[executor].add(lane)

    def spans(self) -> list[Span]:
        """Copy the ring, oldest first."""
        return [Span(*fields) for fields in list(self._ring)]

    def tallies(self) -> list[StageTally]:
        """Copy the tallies, in the order in which stages first ran."""
        with self._lock:
            self._count()
            return [
                dataclasses.replace(tally, lane_count=len(self._lanes[tally.executor]))
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
