"""Spans: what ran where and when, recorded always.

A span is a plain tuple. A thousand at a time are added to the tallies for ``statistics``, by numpy,
and go into a bounded ring, so that a stage pays for one append and no lock. A stage of a device
that runs by itself has two spans: the enqueueing on the host, and what the device did, which its
stream tells later. Those have a ring of their own, so that what is forgotten of the first stays in
order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from ...executors import DeviceLane, Lane
from .copied_bytes import CopiedBytes, CopiesRing, copies_of_spans
from .durations import COUNT_AT, NO_DURATIONS, DurationCounts, Durations

__all__ = ["NodeSpan", "RunMark", "Span", "SpanFields", "SpanRecorder", "StageTally", "busy_shares"]

RunMark = tuple[int, int, int]
"""What the spans of one run have in common: (run_id, age, arrived_ns), see Span. No class, because
each run makes one."""


class TracedStage(Protocol):
    """What a span says of its stage."""

    place: tuple[str, str]
    """The names of the stage and of its executor."""
    part: object
    """Which part of the network it runs: a function says so once the stage has run, of all else
    ``str`` does when spans are looked at."""


NO_BYTES: Mapping[str, int] = {}  # never written; a proxy could not be pickled
RING_SPANS = 65_536  # about 10 MB when full: a minute of a thousand requests/s


class Span(NamedTuple):
    """One stage of one run. Times are ``time.perf_counter_ns``; the wait is started - queued.

    What a device's queue did is named by that, in ``executor`` and ``lane``, and is queued when its
    run has nothing else to wait for; the enqueueing stands beside it as "<queue> host".
    ``subgraph`` is the id of the compiled plan that ran, where the device has several; ``device``
    is that of the network, or sub-network, whose stage it is. ``run_id`` is the request's. ``age``
    tells the runs of one request apart, over all networks, and is shared with sub-runs.
    ``arrived_ns``: when the run was asked for; 0 if its first span was queued then. ``network`` is
    named in a trace of several. ``copied_bytes`` says by kind what it copied (copied_bytes.KINDS).
    ``members`` are the ids of all requests whose run it is, where several share one (BATCH); it
    stands among the spans of the first of them.
    """

    run_id: int
    stage: str
    executor: str
    lane: str
    queued_ns: int
    started_ns: int
    ended_ns: int
    subgraph: str = ""
    device: str = ""
    age: int = 0
    arrived_ns: int = 0
    network: str = ""
    copied_bytes: Mapping[str, int] = NO_BYTES
    members: tuple[int, ...] = ()


class NodeSpan(NamedTuple):
    """One node of one run, as ``profiling`` tells it; only where PERF_COUNT is on."""

    run_id: int
    age: int
    name: str
    op: str
    started_ns: int
    ended_ns: int


class TracedNode(Protocol):
    """What a span of a node says of it."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


SpanFields = tuple[RunMark, tuple[str, str], str, int, int, int, object]
"""A span as it is kept: its run, the place of its stage, lane, three times and part."""


@dataclass(frozen=True)
class StageTally:
    """How often a stage ran on an executor, and for how long."""

    stage: str
    executor: str
    lane_count: int = 0
    count: int = 0
    busy_ns: int = 0
    queued_ns: int = 0
    service: Durations = NO_DURATIONS
    queue: Durations = NO_DURATIONS


class SpanRecorder:
    """The ring of one network, and its tallies. Thread-safe."""

    def __init__(self, capacity: int = RING_SPANS) -> None:
        self._ring: deque[SpanFields] = deque(maxlen=capacity)
        self._device_ring: deque[SpanFields] = deque(maxlen=capacity)
        self._uncounted: deque[SpanFields] = deque()
        self.keep = self._uncounted.append
        """Keeps the span of a stage on the host, until more come by ``record``."""
        self._uncounted_work: deque[SpanFields] = deque()
        self._service: dict[tuple[str, str], DurationCounts] = {}
        self._queue: dict[tuple[str, str], DurationCounts] = {}
        self._lanes: dict[str, set[str]] = {}
        self.is_looked_at = False
        """True once spans were asked for: a device whose times are dear tells them from then on."""
        self._profiles: deque[tuple[RunMark, Sequence[TracedNode]]] = deque()
        self._node_count = 0
        self._copies = CopiesRing(capacity)
        self._lock = threading.Lock()

    def record(
        self,
        run: RunMark,
        stage: TracedStage,
        lane: Lane,
        queued_ns: int,
        started_ns: int,
        ended_ns: int,
    ) -> None:
        """Note that a stage has run; called by runs only, where the stage was.

        Of a run that no caller asked for, whose arrival is negative, nothing is noted.
        """
        if run[2] < 0:
            return
        place, part, lane_name = stage.place, stage.part, lane.name
        name = part() if callable(part) else part
        if type(lane) is not Lane and isinstance(lane, DeviceLane):
            lane.stream.tell_times(partial(self._record_work, run, place, lane_name, name))
            lane_name = lane.host_name
            place = place[0], lane_name
        self.keep((run, place, lane_name, queued_ns, started_ns, ended_ns, name))
        if len(self._uncounted) >= COUNT_AT:
            with self._lock:
                self._count()

    def keep_nodes(self, run: RunMark, profile: Sequence[TracedNode]) -> None:
        """Note the nodes of a run that has ended; the oldest runs' are forgotten."""
        with self._lock:
            self._profiles.append((run, profile))
            self._node_count += len(profile)
            while self._node_count > RING_SPANS and len(self._profiles) > 1:
                self._node_count -= len(self._profiles.popleft()[1])

    def note_copies(self, age: int, copies: Iterable[tuple[CopiedBytes, int]]) -> None:
        """Note what stages of a run of this age have copied; called where it was, and cheap.

        Each with when the span began of which it is, for stages that have several, or 0.
        """
        if self._copies.keep(age, copies) >= COUNT_AT:
            with self._lock:
                self._copies.count()

    def copied_bytes(self) -> dict[str, dict[str, int]]:
        """Sum up by stage and kind what was copied."""
        with self._lock:
            self._copies.count()
            return self._copies.totals()

    def nodes(self) -> list[NodeSpan]:
        """Copy the nodes of the latest runs, oldest first."""
        with self._lock:
            profiles = list(self._profiles)
        return [
            NodeSpan(run[0], run[1], node.name, node.op, node.start_ns, node.end_ns)
            for run, profile in profiles
            for node in profile
        ]

    def _record_work(
        self,
        run: RunMark,
        place: tuple[str, str],
        lane: str,
        part: object,
        queued_ns: int,
        began_ns: int,
        ended_ns: int,
    ) -> None:
        """Note what a device did for a stage."""
        self._uncounted_work.append((run, place, lane, queued_ns, began_ns, ended_ns, part))
        if len(self._uncounted_work) >= COUNT_AT:
            with self._lock:
                self._count()

    def _count(self) -> None:
        """Add what was recorded since the last time to the tallies and the rings."""
        by_place: dict[tuple[str, str], list[SpanFields]] = {}
        for new, ring in (
            (self._uncounted, self._ring),
            (self._uncounted_work, self._device_ring),
        ):
            for _ in range(len(new)):
                fields = new.popleft()
                ring.append(fields)
                spans = by_place.get(fields[1])
                if spans is None:
                    spans = by_place[fields[1]] = []
                spans.append(fields)
        for place, spans in by_place.items():
            if place not in self._service:
                self._service[place], self._queue[place] = DurationCounts(), DurationCounts()
                self._lanes.setdefault(place[1], set())
            # No zip(*spans): its iterator for each span would bring the garbage collector, which
            # holds up event loops for tens of milliseconds when it looks at everything.
            queued, started, ended = (
                np.array([fields[index] for fields in spans], np.int64) for index in (3, 4, 5)
            )
            self._service[place].add(ended - started)
            self._queue[place].add(started - queued)
            self._lanes[place[1]].update([fields[2] for fields in spans])

    def spans(self, device: str = "") -> list[Span]:
        """Copy the rings, each oldest first, devices' work last; ``device`` is the network's."""
        self.is_looked_at = True
        with self._lock:
            self._count()
            self._copies.count()
            kept, copies = [*self._ring, *self._device_ring], self._copies.latest()
        spans = []
        for fields in kept:
            run, (stage, executor), lane, queued_ns, started_ns, ended_ns, part = fields
            times = queued_ns, started_ns, ended_ns
            name = str(part)
            spans.append(Span(run[0], stage, executor, lane, *times, name, device, run[1], run[2]))
        for place, counts in copies_of_spans(spans, copies).items():
            spans[place] = spans[place]._replace(copied_bytes=counts)
        return spans

    @property
    def forgot_until_ns(self) -> int:
        """Runs that came earlier may lack spans that the ring has dropped; 0: none do."""
        with self._lock:
            self._count()
            is_full = len(self._ring) == self._ring.maxlen
            return self._ring[0][5] if is_full and self._ring else 0

    def tallies(self) -> list[StageTally]:
        """Picture the tallies, in the order in which stages first ran."""
        with self._lock:
            self._count()
            return [
                StageTally(
                    stage=stage,
                    executor=executor,
                    lane_count=len(self._lanes[executor]),
                    count=service.count,
                    busy_ns=service.sum_ns,
                    queued_ns=self._queue[stage, executor].sum_ns,
                    service=service.picture(),
                    queue=self._queue[stage, executor].picture(),
                )
                for (stage, executor), service in self._service.items()
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
