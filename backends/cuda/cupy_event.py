"""Events of CUDA as ends of commands, and the device's clock.

Theory of operation. CUDA knows events that are recorded in a stream, and neither the end of a
command nor its time. A ``RecordedEvent`` is one, which the device passes or not. The commands of a
queue lie in submissions, and the next marker is the event behind the last of them. A question about
a command with no event behind it yet has one recorded then: it comes later than the command, and
never says too early that it is over.

Times are asked for now and then only, and cost the host more than all else: so events have none,
unless a submission is timed. Then an event with a time is recorded before the first of its
commands, too, and launches that are not replayed are submissions of their own. CUDA waits for the
last event of a run alone: asleep, or spinning, without the GIL. From a short sleep a thread comes
back 70 µs late, and half a millisecond in one of a hundred times (an H200's host); to spin keeps a
core busy.

What CUDA tells is the time between two events, in milliseconds of float32. Times are counted from
a base event, and one that is more than a second later becomes the base; the end of a submission is
counted from its beginning. So what is rounded is off by less than 0.1 µs, except once behind a long
time without work. The clock begins at the host's time. When a command was enqueued the device does
not know; the host does, and converts it: a submission began on the device after the host enqueued
it, and it ended before the host saw that it had, and what all submissions allow together leaves
some 10 µs (``DeviceClock``).

An error of a command is sticky: every event that was not seen passed by then has it.
Events are pooled, because to make an event costs more than all else here.
"""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter_ns, sleep
from typing import Any

from ...executors import DeviceClock
from ..accelerator.queues.driver import DriverError, ErrorKind
from .cupy_device import NOT_READY, SUCCESS, CupyDevice

__all__ = ["CupyEvent", "EventPool", "LastWait", "RecordedEvent", "Submission"]

_REBASE_NS = 1_000_000_000
"""A float32 of fewer milliseconds is exact to 0.06 µs."""
_PAUSE_S = 0.0005


class LastWait:
    """How long CUDA's last wait for the end of a run took. Any thread may write it."""

    __slots__ = ("took_ns",)

    def __init__(self) -> None:
        self.took_ns = 0


class RecordedEvent:
    """A CUDA event that is recorded in a stream; given back to the pool with the last reference."""

    __slots__ = ("_device", "_free", "_wait", "passed_ns", "raw", "time_ns")

    def __init__(
        self, device: CupyDevice, free: deque[Any], raw: Any, wait: LastWait | None
    ) -> None:
        self._device, self._free, self.raw, self._wait = device, free, raw, wait
        self.passed_ns = 0
        """By when the host had seen that the device had passed it; 0 if it has not."""
        self.time_ns = 0
        """When the device passed it, by its clock; 0 until it is read."""

    def __del__(self) -> None:
        self._free.append(self.raw)

    def wait(self) -> None:
        """Block until the device has passed it, without the GIL.

        It is asked first: on a host that is behind its device most have passed, and to sleep and
        give up the GIL costs more than the question.
        """
        if self.status == SUCCESS:
            return
        wait = self._wait
        if wait is not None:
            began_ns = perf_counter_ns()
            self._device.called(self.raw.synchronize)
            wait.took_ns = perf_counter_ns() - began_ns
        else:  # CUDA's wait for it would spin; a run that was stopped on its way comes here
            while (status := self.status) == NOT_READY:
                sleep(_PAUSE_S)
            failure = self._device.failure_of(status)
            if failure is not None:
                raise failure
        self.passed_ns = perf_counter_ns()

    @property
    def status(self) -> int:
        """Ask the driver whether the device has passed it; an error's number if it has failed."""
        if self.passed_ns:
            return SUCCESS
        status: int = self._device.runtime.eventQuery(self.raw.ptr)
        if status == SUCCESS:
            self.passed_ns = perf_counter_ns()
        return status


class EventPool:
    """The events of one device, and its clock. Thread-safe."""

    def __init__(self, device: CupyDevice) -> None:
        self.device = device
        self.free: dict[tuple[bool, bool], deque[Any]] = {
            (is_timed, blocks): deque() for is_timed in (False, True) for blocks in (False, True)
        }
        self._lock = threading.Lock()
        self._clock = DeviceClock()
        self._base: RecordedEvent | None = None

    def record(
        self,
        stream: Any,
        *,
        is_timed: bool = False,
        wait: LastWait | None = None,
        spins: bool = False,
    ) -> RecordedEvent:
        """Record an event behind all that is enqueued in a stream.

        ``wait``: where is noted how long CUDA waits for it, if it is the last of a run; ``spins``:
        whether the thread then does.
        """
        blocks = wait is not None and not spins
        free = self.free[is_timed, blocks]
        try:
            raw = free.pop()
        except IndexError:
            make = self.device.cuda.Event
            raw = self.device.on_device(make, block=blocks, disable_timing=not is_timed)
        recorded = RecordedEvent(self.device, free, raw, wait)
        self.device.checked(raw.record, stream)
        return recorded

    def times_ns(self, begin: RecordedEvent, end: RecordedEvent) -> tuple[int, int]:
        """Return when the device passed two events, which it has, by its clock."""
        with self._lock:
            if not begin.time_ns:
                self._read(begin, self._base or begin)
            if not end.time_ns:
                self._read(end, begin)
            return begin.time_ns, max(begin.time_ns, end.time_ns)

    def read_clock(self, device_ns: int, earliest_ns: int, latest_ns: int) -> int:
        """Note between which times of the host it was this time of the device.

        Returns what to add to times of the device.
        """
        return self._clock.read(device_ns, earliest_ns, latest_ns)

    def close(self) -> None:
        """Release all events."""
        with self._lock:
            self._base = None
        for free in self.free.values():
            free.clear()

    def _read(self, recorded: RecordedEvent, near: RecordedEvent) -> None:
        """Note the time of an event; ``near`` is one whose time is known, or itself: the first."""
        if near is recorded:
            recorded.time_ns = perf_counter_ns()
        else:
            elapsed = self.device.cuda.get_elapsed_time
            passed_ms: float = self.device.checked(elapsed, near.raw, recorded.raw)
            recorded.time_ns = near.time_ns + round(passed_ms * 1e6)
        if self._base is None or recorded.time_ns > self._base.time_ns + _REBASE_NS:
            self._base = recorded


class Submission:
    """Commands of a queue up to an event; ``end`` is None until it is recorded.

    ``begin`` is the event before them, if they are timed.
    """

    __slots__ = ("_queued_ns", "begin", "end", "enqueued_ns")

    def __init__(self, begin: RecordedEvent | None, enqueued_ns: int) -> None:
        self.begin, self.enqueued_ns = begin, enqueued_ns
        self.end: RecordedEvent | None = None
        self._queued_ns = 0

    def times_ns(self, pool: EventPool, end: RecordedEvent) -> tuple[int, int]:
        """Return when the device began and ended it, by the device's clock; ``end`` has passed."""
        if self.begin is None:
            raise DriverError(ErrorKind.OTHER, "the queue was not timed")
        return pool.times_ns(self.begin, end)

    def queued_ns(self, pool: EventPool, end: RecordedEvent) -> int:
        """Return when the host enqueued it, by the device's clock; ``end`` has passed."""
        if not self._queued_ns:
            began_ns, ended_ns = self.times_ns(pool, end)
            latest_ns = max(end.passed_ns - (ended_ns - began_ns), self.enqueued_ns)
            distance_ns = pool.read_clock(began_ns, self.enqueued_ns, latest_ns)
            self._queued_ns = min(self.enqueued_ns - distance_ns, began_ns)
        return self._queued_ns


class CupyEvent:
    """The end of a command; keeps a copy's host array alive."""

    __slots__ = ("_end", "_kept", "_pool", "_stream", "_submission")

    def __init__(
        self, pool: EventPool, stream: Any, submission: Submission, kept: object = None
    ) -> None:
        self._pool, self._stream, self._submission, self._kept = pool, stream, submission, kept
        self._end: RecordedEvent | None = None

    @property
    def end(self) -> RecordedEvent:
        """The event behind the command; recorded if there is none yet."""
        end = self._end or self._submission.end
        if end is None:
            is_timed = self._submission.begin is not None
            end = self._pool.record(self._stream, is_timed=is_timed, wait=LastWait())
        self._end = end
        return end

    def wait(self) -> None:
        try:
            self.end.wait()
        except DriverError as error:
            raise DriverError(ErrorKind.WAITED_FOR_FAILURE, error.text) from error
        if self._submission.begin is None:
            return
        try:
            self._submission.queued_ns(self._pool, self.end)  # that it is over is seen no sooner
        except DriverError:
            return

    @property
    def is_over(self) -> bool:
        return self.end.status != NOT_READY

    @property
    def failure(self) -> DriverError | None:
        return self._pool.device.failure_of(self.end.status)

    @property
    def times_ns(self) -> tuple[int, int]:
        return self._passed().times_ns(self._pool, self.end)

    @property
    def queued_ns(self) -> int:
        return self._passed().queued_ns(self._pool, self.end)

    def _passed(self) -> Submission:
        """Return the submission, if the device has passed its end; else there are no times yet."""
        status = self.end.status
        if status != SUCCESS:
            reason = self._pool.device.failure_of(status)
            raise reason or DriverError(ErrorKind.OTHER, "the command has not ended yet")
        return self._submission
