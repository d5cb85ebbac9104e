"""Calling something at a time: deadlines, and collectors that have waited long enough.

What is called runs on the timer's thread and must only set a ``Stop`` or kick a collector. Most
alarms are cancelled, because most requests are in time: cancelling is O(1), drops the function at
once, and the heap is swept when more than half of it is cancelled.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..errors import PropertyError
from .base import mark_own_thread, refuse_own_thread
from .fork import ProcessMark
from .shortage import start_thread

_log = logging.getLogger("aioinfer")

_SWEEP_FROM = 64  # a shorter heap costs nothing to keep
_RETRY_S = 0.05  # how late an alarm may be where memory is wanting


class TimerHandle:
    """One alarm; ``cancel`` forgets it. Thread-safe."""

    __slots__ = ("_alarms", "_call", "when_s")

    def __init__(self, when_s: float, call: Callable[[], None], alarms: _Alarms) -> None:
        self.when_s = when_s
        self._call: Callable[[], None] | None = call
        self._alarms = alarms

    @property
    def is_pending(self) -> bool:
        """True until it is cancelled or its time has come."""
        return self._call is not None

    def cancel(self) -> bool:
        """Drop the function; True says that it will not be called. Never blocks, twice is fine.

        False says that it was called, is just being called, or was cancelled before.
        """
        return self._alarms.cancel(self)

    def _take(self) -> Callable[[], None] | None:
        call, self._call = self._call, None
        return call


class _Alarms:
    """A heap of handles by time, then age. Thread-safe; it calls nothing and reads no clock."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self._heap: list[tuple[float, int, TimerHandle]] = []
        self._ages = itertools.count()
        self._cancelled_count = 0
        self._process = ProcessMark()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_s: float, call: Callable[[], None]) -> TimerHandle:
        """Keep the function until its time; wakes the waiting thread if this is the next one."""
        if math.isnan(when_s):
            raise PropertyError(
                "a timer cannot be set for time NaN; give seconds of its clock",
                "when_s",
                value=when_s,
            )
        handle = TimerHandle(when_s, call, self)
        with self.changed:
            heapq.heappush(self._heap, (when_s, next(self._ages), handle))
            if self._heap[0][2] is handle:
                self.changed.notify_all()
        return handle

    def cancel(self, handle: TimerHandle) -> bool:
        """Drop the handle's function, and sweep the heap if most of it is dead."""
        if not self._process.is_current:  # the lock may have been held by a thread that is gone
            return handle._take() is not None
        with self.changed:
            call = handle._take()  # what it kept alive ends after the lock, with this frame
            if call is None:
                return False
            self._cancelled_count += 1
            if self._cancelled_count * 2 > len(self._heap) >= _SWEEP_FROM:
                self._heap = [entry for entry in self._heap if entry[2].is_pending]
                heapq.heapify(self._heap)
                self._cancelled_count = 0
        return True

    def pop_due(self, now_s: float) -> tuple[float, Callable[[], None]] | None:
        """Take the earliest function whose time has come, with that time. Hold ``changed``."""
        while self._heap and (self._heap[0][0] <= now_s or not self._heap[0][2].is_pending):
            when_s, _, handle = heapq.heappop(self._heap)
            call = handle._take()
            if call is not None:
                return when_s, call
            self._cancelled_count -= 1
        return None

    def next_s(self) -> float:
        """When the next alarm is due; infinity if there is none. Hold ``changed``."""
        return self._heap[0][0] if self._heap else math.inf

    def clear(self) -> None:
        """Cancel all of them."""
        with self.changed:
            dropped = [handle._take() for _, _, handle in self._heap]
            self._heap.clear()
            self._cancelled_count = 0
            self.changed.notify_all()
        del dropped  # outside the lock, because what they kept alive ends here


class Clock(ABC):
    """Tells the time, in seconds of its own, and calls functions at a time."""

    @abstractmethod
    def now_s(self) -> float:
        """Return the time now; it never goes back."""

    @abstractmethod
    def call_at(self, when_s: float, call: Callable[[], None]) -> TimerHandle:
        """Call the function once that time has come, also if it lies in the past. Any thread.

        The function only sets a flag or kicks a collector: it neither blocks nor computes.
        Infinity is never. Raises PropertyError for NaN.
        """


class Timer(Clock):
    """Real time (``time.monotonic``), with one daemon thread that starts with the first alarm.

    An error in a function is logged, and the timer goes on.
    """

    def __init__(self, name: str = "timer") -> None:
        self.name = name
        self._alarms = _Alarms()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._process = ProcessMark()

    def now_s(self) -> float:
        return time.monotonic()

    def call_at(self, when_s: float, call: Callable[[], None]) -> TimerHandle:
        """Call the function on the timer's thread; see Clock. Raises ClosedError in a forked child.

        Raises DeviceError, and keeps nothing, where the thread cannot be started; the next alarm
        tries again. A closed timer takes the alarm and never fires it, so that a late deadline is
        no error.
        """
        self._process.check(f"timer {self.name!r}")
        if self._thread is None:
            self._start()
        handle = self._alarms.add(when_s, call)
        if self._is_closed:
            self._alarms.clear()
        return handle

    def close(self) -> None:
        """Cancel every alarm and join the thread; twice is fine. Blocks while a function runs.

        Raises RequestStateError on one of aioinfer's own threads.
        """
        refuse_own_thread(f"closing {self!r}")
        if not self._process.is_current:
            return
        with self._alarms.changed:
            self._is_closed = True
            thread = self._thread
        self._alarms.clear()
        if thread is not None:
            thread.join()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._alarms)} set"
        return f"<{type(self).__name__} {self.name!r} {state}>"

    def _start(self) -> None:
        with self._alarms.changed:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                start_thread(thread)
                self._thread = thread

    def _work(self) -> None:
        mark_own_thread()
        while not self._is_closed:
            try:
                call = self._wait_for_due()
            except (MemoryError, RuntimeError):  # no memory for the lock that it would sleep on
                time.sleep(_RETRY_S)
                continue
            if call is None:
                break
            try:
                call()
            except BaseException:
                _log.exception("%r: %r raised; it may only set a flag or kick", self, call)
            del call  # an idle timer keeps nothing alive

    def _wait_for_due(self) -> Callable[[], None] | None:
        """Sleep until an alarm is due and take it; None once closed."""
        with self._alarms.changed:
            while not self._is_closed:
                due = self._alarms.pop_due(time.monotonic())
                if due is not None:
                    return due[1]
                left_s = self._alarms.next_s() - time.monotonic()
                self._alarms.changed.wait(max(0.0, min(left_s, threading.TIMEOUT_MAX)))
        return None


class VirtualTimer(Clock):
    """Time that stands still until a test advances it; alarms fire on the advancing thread.

    ```python
    from aioinfer.testing import VirtualTimer

    rung = []
    timer = VirtualTimer()
    timer.call_at(2.0, lambda: rung.append(timer.now_s()))
    timer.advance(1.0)
    assert not rung
    timer.advance(1.0)
    assert rung == [2.0]
    ```
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._alarms = _Alarms()

    def now_s(self) -> float:
        return self._now_s

    def call_at(self, when_s: float, call: Callable[[], None]) -> TimerHandle:
        return self._alarms.add(when_s, call)

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, 0 or more, and fire what becomes due, earliest first.

        While a function runs, the time is the one it was set for, and what it sets for later within
        the same stretch fires too. A function's error is raised here, with the time at that point.
        """
        if not seconds >= 0:
            raise PropertyError(
                f"virtual time cannot be advanced by {seconds} s; give 0 or more",
                "seconds",
                value=seconds,
            )
        end_s = self._now_s + seconds
        while True:
            with self._alarms.changed:
                due = self._alarms.pop_due(end_s)
            if due is None:
                break
            when_s, call = due
            self._now_s = max(self._now_s, when_s)
            call()
        self._now_s = end_s

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._now_s} s, {len(self._alarms)} set>"


class _Process:
    """The timer of this process."""

    timer = Timer("aioinfer.timer")


def process_timer() -> Timer:
    """Return the process's own timer, which is never closed; a forked child has its own."""
    return _Process.timer


def _renew_in_child() -> None:
    _Process.timer = Timer("aioinfer.timer")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
