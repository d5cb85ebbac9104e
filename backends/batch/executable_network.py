"""BatchNetwork: a network whose requests share runs while they would have to wait."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from ...executors import (
    NOW,
    ImmediateExecutor,
    Ready,
    StreamsConfig,
    TaskExecutor,
    Then,
    TimerHandle,
    hop,
)
from ...executors.base import refuse_own_thread
from ...runtime.blobs.writer import BlobWriter
from ...runtime.devices.plugin import CoreHandle
from ...runtime.loops.inline_turn import InlineTurn
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.outer_network import OuterNetwork
from ...runtime.plans.batch_axis import BatchAxis
from ...runtime.properties.properties import (
    MAX_QUEUED_REQUESTS,
    UNBOUNDED,
    Configuration,
    Metric,
)
from ...runtime.runs.bindings import WARMING, Bindings
from ...runtime.runs.error_frames import own_error
from ...runtime.runs.run import Run
from ...runtime.runs.stage import Stop
from ...runtime.tracing.statistics import NetworkStatistics
from ...runtime.tracing.timeline import Trace
from .batch_record import batch_record
from .collector import Collector, Pace
from .crowd import Crowd
from .joined_run import AloneRun, JoinedRun
from .length_padding import LengthPadding
from .member import BatchMember
from .properties import AUTO_BATCH_TIMEOUT
from .row_memory import RowMemory
from .rows import RowsOf, rows_of

__all__ = ["BatchNetwork"]

_log = logging.getLogger("aioinfer")

KEPT_GROUPS = 4096
"""For how many of the latest shared runs it is known which requests shared them, for traces."""
_LIGHT_BYTES = 64 << 10
"""Copies up to this many are made on the calling thread, which may turn an event loop."""


class BatchNetwork(OuterNetwork):
    """Joins requests that come while the device is busy into runs of up to ``most_rows`` rows.

    A request that finds the device idle goes at once, with its own arrays. One that cannot share a
    run, because no other has the same lengths, goes alone.
    """

    def __init__(
        self,
        compiled: ExecutableNetwork,
        axis: BatchAxis,
        most_rows: int,
        config: Configuration,
        core: CoreHandle,
        padding: LengthPadding | None = None,
    ) -> None:
        super().__init__(
            compiled, core, device=f"{config.device}:{compiled.device}({most_rows})", config=config
        )
        self._axis = axis
        self.batched_inputs: Sequence[str] = axis.inputs
        self.batched_outputs = frozenset(axis.outputs)
        self.padding = padding
        self.rows_of: RowsOf = rows_of if padding is None else padding.rows_of
        self.most_rows = most_rows
        most_count = compiled.optimal_request_count
        # As many again wait as are under way, so that a full run is ready when one ends.
        wanted = int(config["PERFORMANCE_HINT_NUM_REQUESTS"])
        self._request_count = wanted or most_rows * (most_count + 1)
        self.timeout_s = config[AUTO_BATCH_TIMEOUT] / 1000
        self.service_s = 0.0
        # One run of two or more computes while the next follows it, which is for full ones.
        self.pace = Pace((most_count + 1) // 2, most_count, is_timed=self.timeout_s > 0)
        self.process = self._process
        self.run_ids: Iterator[int] = self._request_ids
        self._group_sizes: Counter[int] = Counter()
        self._members: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=KEPT_GROUPS)
        """The age of the latest runs that several requests share, and the ids of these."""
        self.collector: Collector[BatchMember] = Collector(most_rows, self.pace)
        self._under_way: set[_Turn] = set()
        self.run_count = 0
        """Of those under way."""
        self.collecting = threading.Lock()
        self._helping = _Helping()
        self._alarm: TimerHandle | None = None
        self._alarm_at_s = 0.0
        self._light = ImmediateExecutor("batch")
        self._heavy = core.executors.acquire(StreamsConfig("BATCH.copy"))
        self._arrays = RowMemory(compiled, 2 * most_count)
        try:
            self._provide_slots([BatchMember(self) for _ in range(self._request_count)])
            waiting_count = self.collector.waiting.__len__
            self.admission.grow_slots(partial(BatchMember, self), waiting_count)
            if compiled.inline_route is not None and not self.pace.is_timed:
                self.inline_route = compiled.inline_route.around(self.admission, self.inputs)
            self._crowd = self._crowd_if_any()
            self.shared_route = self._crowd
        except BaseException:
            self._abandon()
            raise

    @property
    def optimal_request_count(self) -> int:
        return self._request_count

    def offer(self, member: BatchMember) -> None:
        """Have a request wait for its run, which may begin at once. Never raises or blocks."""
        pace = self.pace
        with self.collecting:
            is_full = self.collector.add(member)
            is_due = self.run_count < (pace.most_count if is_full else pace.busy_count)
        try:
            if member.stop.error is not None:
                member.on_stop()
            if is_due and self._helping.turn is None:
                hop(self.begin_runs)
        except Exception as error:  # no memory for the call; the member waits
            with suppress(Exception):
                self.hop_failed(error)

    def drop(self, member: BatchMember) -> bool:
        """Take a stopped request out of those that wait; False: it has a run."""
        with self.collecting:
            is_waiting = member.stop.error is not None and member in self.collector.waiting
            if is_waiting:
                if member.bundle is not None:
                    member.bundle.close()
                self.collector.drop(member)
        return is_waiting

    def _crowd_if_any(self) -> Crowd | None:
        """Return the way of calls that share a run; None where each of them is looked at apart."""
        is_bounded = self.config.value_or_default(MAX_QUEUED_REQUESTS) != UNBOUNDED
        if is_bounded or self.has_perf_count or self.kept_outputs:
            return None
        return Crowd(self, frozenset(port.name for port in self.outputs))

    def begin_runs(self) -> None:
        """Begin as many runs as may be under way now."""
        while True:
            turn: _Turn | None = None
            try:
                with self.collecting:
                    due_s = self.collector.due_at_s(self.run_count)
                    if due_s is None:
                        return
                    if due_s and due_s > self.clock.now_s():
                        self._set_alarm(due_s)
                        return
                    turn = self._take_group()
                self._begin(turn)
            except Exception as error:  # no memory
                self._end_turn(turn, error)
                if turn is None:
                    return

    def hop_failed(self, error: BaseException) -> None:
        """Begin runs all the same: there was no memory for the call that was to do that."""
        self.begin_runs()
        _log.warning("%r goes on after %r", self, error)

    def _take_group(self) -> _Turn:
        """Take the members of the next run; raises only if they still wait. Locked."""
        turn = _Turn()
        self._under_way.add(turn)
        try:
            group = turn.group = self.collector.take_group()
        except BaseException:
            self._under_way.discard(turn)
            raise
        self.run_count = len(self._under_way)
        try:
            turn.request_count = _request_count(group)
            for member in group:
                member.take(turn.request_count)
            if group[0].bindings.arrived_ns != WARMING:
                self._group_sizes[turn.request_count] += 1
        except Exception as error:  # no memory
            turn.error = error
            for member in group:
                if member.bundle is not None:
                    member.bundle.is_closed = True
        return turn

    def _end_turn(self, turn: _Turn | None, error: BaseException) -> None:
        """End the requests of a run that could not begin; or all that wait, if there is none.

        What waits while runs are under way is begun at the end of these.
        """
        with self.collecting:
            if turn is not None:
                group = turn.group
                self._under_way.discard(turn)
                self.run_count = len(self._under_way)
            else:
                group = [] if self._under_way else self.collector.take_all()
        failed = []
        for member in group:
            try:
                member.end(NOW, member.stop.error or own_error(error))
            except Exception:  # no memory for that either
                failed.append(member)
        for member in failed:
            member.end(NOW, error)

    def help_along(self, add: Callable[[], object], turn: InlineTurn, until_ns: int) -> None:
        """Add to what waits, and run of that on this thread until then, as long as it is short.

        One run more may be under way than the device takes at a time, which is this thread's.
        """
        helping = self._helping
        try:
            helping.turn, helping.is_carrying = turn, True
            add()
            while helping.is_carrying:
                with self.collecting:
                    if not self.collector.waiting or self.run_count > self.pace.most_count:
                        break
                    taken = self._take_group()
                try:
                    self._begin(taken)
                except Exception as error:  # no memory
                    self._end_turn(taken, error)
                if perf_counter_ns() > until_ns:
                    break
        finally:
            helping.turn = None
            hop(self.begin_runs)

    def start_inside(self, bindings: Bindings, stop: Stop, then: Then) -> None:
        """Send a run to the network inside; carry it on a thread that helps."""
        turn, route = self._helping.turn, self.compiled.inline_route
        if turn is not None and route is not None:
            run = Run(self.compiled.admission, bindings, stop, NOW, then)
            if route.carry(run, turn):
                return
            self._helping.is_carrying = False
        self.compiled.start_run(bindings, stop, NOW, then)

    def note_carried(self, age: int, run_ids: Sequence[int]) -> None:
        """Count a run that a loop has carried, and keep which requests shared it."""
        with self.collecting:
            self._group_sizes[len(run_ids)] += 1
        if len(run_ids) > 1:
            self._members.append((age, tuple(run_ids)))

    def _set_alarm(self, due_s: float) -> None:
        if self._alarm is not None:
            if self._alarm_at_s <= due_s:
                return
            self._alarm.cancel()
            self._alarm = None
        self._alarm = self.clock.call_at(due_s, self._ring)
        self._alarm_at_s = due_s

    def _ring(self) -> None:
        with self.collecting:
            self._alarm = None
        hop(self.begin_runs)

    def _begin(self, turn: _Turn) -> None:
        """Begin a run; if it raises, nothing works for it, and its members have not ended."""
        if turn.error is not None:
            raise turn.error
        group, count = turn.group, turn.request_count
        self.admission.note_waits(_waits_ns(group, perf_counter_ns()))
        began_s = self.clock.now_s() if self.timeout_s else 0.0
        over = partial(self._run_over, began_s, turn)
        if count > 1 or len(group) > 1:
            joined = JoinedRun(group, self, over)
            self._members.append((group[0].ticket[1], _run_ids(group)))
            joined.start()
        else:
            AloneRun(group[0], over).start(self._start_alone)

    def _start_alone(self, bindings: Bindings, stop: Stop, _after: Ready, then: Then) -> None:
        self.start_inside(bindings, stop, then)

    def _run_over(self, began_s: float, turn: _Turn) -> None:
        if self.timeout_s:  # of late: it follows longer runs at once, and shorter ones slowly
            took_s = self.clock.now_s() - began_s
            self.service_s = max(took_s, self.service_s + (took_s - self.service_s) / 8)
        with self.collecting:
            self._under_way.discard(turn)
            self.run_count = len(self._under_way)
        if self._helping.turn is None:
            self.begin_runs()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return self._arrays.empty(shape, dtype)

    def give_back(self, arrays: Iterable[np.ndarray[Any, Any]]) -> None:
        self._arrays.give_back(arrays)

    def copier(self, size_bytes: int) -> TaskExecutor:
        return self._light if size_bytes <= _LIGHT_BYTES else self._heavy

    @property
    def execution_devices(self) -> tuple[str, ...]:
        return (self.device,)

    def statistics(self) -> NetworkStatistics:
        with self.collecting:
            sizes = self._group_sizes.copy()
            if self.inline_route is not None:
                sizes[1] += self.inline_route.lent.count
        group_sizes = {size: count for size, count in sorted(sizes.items()) if count}
        return replace(super().statistics(), group_sizes=group_sizes)

    def trace(self) -> Trace:
        whole, members = super().trace(), dict(self._members)
        spans = [
            span._replace(members=members[span.age]) if span.age in members else span
            for span in whole
        ]
        return Trace(self.name, self.device, spans, whole.forgot_until_ns, whole.nodes)

    def explain(self) -> str:
        first, *others = self.compiled.explain().split("\n")
        first += (
            f"; requests that come while it is busy share a run, of up to "
            f"{self.most_rows} rows{self._padding_text()}"
        )
        return "\n".join([first, *others])

    def _padding_text(self) -> str:
        if self.padding is None:
            return ""
        return f", sequences padded to {', '.join(map(str, self.padding.buckets))}"

    def _metrics(self) -> Sequence[Metric]:
        return [
            *super()._metrics(),
            Metric("MAX_BATCH_SIZE", lambda _: self.most_rows, "Rows that one run has, at most."),
        ]

    def _write_payload(self, blob: BlobWriter) -> None:
        blob.add_json("batch", batch_record(self._axis, self.padding))
        self.compiled.write_blob(blob.under("compiled"))

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        refuse_own_thread("close", **self.admission.where)
        self._stop_gathering()
        return super().close(drain=drain, timeout_s=timeout_s)

    def abort(self) -> None:
        self._stop_gathering()
        super().abort()

    def _stop_gathering(self) -> None:
        if self._crowd is not None and self._process.is_current:
            self._crowd.close()

    def _release_device(self) -> None:
        self.shared_route = self._crowd = None  # which knows this network
        self._arrays.clear()
        if self._alarm is not None:
            self._alarm.cancel()  # it holds the network
        try:
            super()._release_device()
        finally:
            self._core.executors.release(self._heavy)
            self._light.close()


class _Turn:
    """The place of one run among those under way."""

    group: Sequence[BatchMember] = ()
    request_count = 0
    error: Exception | None = None
    """Why it cannot begin."""


class _Helping(threading.local):
    """What a thread does that runs what waits."""

    turn: InlineTurn | None = None
    """Its account, while it does."""
    is_carrying = False
    """The last run was short enough."""


def _request_count(group: Sequence[BatchMember]) -> int:
    count = 0
    for member in group:
        count += 1 if member.bundle is None else len(member.bundle.parts)
    return count


def _run_ids(group: Sequence[BatchMember]) -> tuple[int, ...]:
    ids: list[int] = []
    for member in group:
        bundle = member.bundle
        ids += (
            [member.bindings.run_id] if bundle is None else [part.run_id for part in bundle.parts]
        )
    return tuple(ids)


def _waits_ns(group: Sequence[BatchMember], now_ns: int) -> list[int]:
    waits: list[int] = []
    for member in group:
        bundle = member.bundle
        if bundle is not None:
            waits += [now_ns - part.arrived_ns for part in bundle.parts]
        elif member.bindings.arrived_ns != WARMING:
            waits.append(now_ns - member.bindings.arrived_ns)
    return waits
