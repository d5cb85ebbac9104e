"""Slots, and the runs on their way through them: the shell around the admission queue.

Theory of operation. Every run of a network comes in by :meth:`RunAdmission.start`. One that gets a
slot starts on the thread that called or that freed the slot; one that is stopped while it waits
never reaches the device. A slot is free again when its run's last token has fired, whatever became
of the caller meanwhile. Runs and open requests are counted, so that a close can wait for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter_ns

from ..errors import ClosedError
from ..executors import Ready, Then, hop
from .admission import AdmissionQueue
from .bindings import Bindings
from .pipeline import GraphRun, PipelineRun, Stage, Stop
from .tracing import SpanRecorder

__all__ = ["RunAdmission", "Slot"]

_log = logging.getLogger("aioinfer")


class Slot:
    """The device memory one run occupies, first stage to last token, and its stages.

    The stage functions read ``bindings``, which are there while a run has the slot.
    """

    bindings: Bindings
    stop: Stop
    stages: Sequence[Stage] = ()

    def start(
        self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder
    ) -> PipelineRun | GraphRun:
        """Send the bindings through the stages; ``then`` comes exactly once. Returns the run."""
        run = PipelineRun(self.stages, stop, then, recorder, self.bindings.run_id)
        run.start(after)
        return run

    def release(self) -> None:
        """(optional) Let go of what belonged to the run that has ended."""
        del self.bindings, self.stop


class _AdmittedRun:
    """A run on its way through a network, from start to its last token."""

    __slots__ = ("admission", "after", "bindings", "run", "slot", "stop", "then")

    def __init__(
        self, admission: RunAdmission, bindings: Bindings, stop: Stop, after: Ready, then: Then
    ) -> None:
        self.admission, self.bindings = admission, bindings
        self.stop, self.after, self.then = stop, after, then
        self.slot: Slot | None = None
        self.run: PipelineRun | GraphRun | None = None

    def stopped(self) -> None:
        self.admission._drop(self)

    def ended(self, ready: Ready, error: BaseException | None) -> None:
        """The slot is freed by its own last token, before anybody is told."""
        ready.when_ready(self._released)
        hop(self.then, ready, error)

    def _released(self, _late: BaseException | None) -> None:
        self.admission._release(self)


class RunAdmission:
    """The slots of one network and its runs. Thread-safe; ``network`` is its name, for messages.

    ``closed_error`` makes the error for a run that comes too late.
    """

    def __init__(self, network: str, closed_error: Callable[[], ClosedError]) -> None:
        self.recorder = SpanRecorder()
        self.slot_count = 0
        self.first_run_ns = 0
        """When the first run came; 0 before."""
        self.is_closed = False
        self._network, self._closed_error = network, closed_error
        self._lock = threading.Lock()
        self._all_ended = threading.Condition(self._lock)
        self._queue: AdmissionQueue[Slot, _AdmittedRun] = AdmissionQueue()
        self._runs: set[_AdmittedRun] = set()
        self._open_request_count = 0

    @property
    def run_count(self) -> int:
        """How many runs wait for a slot or have one."""
        return len(self._runs)

    @property
    def waiting_count(self) -> int:
        """How many runs wait for a slot."""
        return self._queue.waiting_count

    @property
    def idle_slot_count(self) -> int:
        """How many slots no run has."""
        return self._queue.idle_count

    @property
    def open_request_count(self) -> int:
        """How many requests have started and are not over."""
        return self._open_request_count

    def add_slots(self, slots: Sequence[Slot]) -> None:
        """Take in the network's slots; before the first run."""
        self._queue.add_slots(slots)
        self.slot_count += len(slots)

    def start(self, bindings: Bindings, stop: Stop, after: Ready, then: Then) -> None:
        """Start a run as soon as a slot is free; raises ClosedError, and keeps nothing, if closed.

        Otherwise ``then`` comes exactly once. Never blocks.
        """
        run = _AdmittedRun(self, bindings, stop, after, then)
        with self._lock:
            if self.is_closed:
                raise self._closed_error()
            self._runs.add(run)
            if not self.first_run_ns:
                self.first_run_ns = perf_counter_ns()
            slot = run.slot = self._queue.offer(bindings.ticket, run)
        if slot is None:
            stop.when_set(run.stopped)
        else:
            hop(self._begin, run, slot)

    def _begin(self, run: _AdmittedRun, slot: Slot) -> None:
        slot.bindings, slot.stop = run.bindings, run.stop
        if run.stop.error is not None:
            run.ended(run.after, run.stop.error)
            return
        try:
            started = slot.start(run.stop, run.after, run.ended, self.recorder)
        except Exception as error:  # the backend's own; the run has not begun
            run.ended(run.after, error)
            return
        with self._lock:
            if run in self._runs:  # else it has ended meanwhile
                run.run = started

    def _drop(self, run: _AdmittedRun) -> None:
        """End a stopped run that waits for a slot; one that has a slot ends by itself."""
        with self._lock:
            if not self._queue.drop(run):
                return
            self._forget(run)
        hop(run.then, run.after, run.stop.error)

    def _release(self, run: _AdmittedRun) -> None:
        slot = run.slot
        assert slot is not None
        try:
            slot.release()
        except Exception:  # the backend's own; the next run must not wait for ever
            _log.exception("a slot of network %s cannot let go", self._network)
        with self._lock:
            self._forget(run)
            following = self._queue.release(slot)
            if following is not None:
                following.slot = slot
        if following is not None:
            following.stop.forget(following.stopped)
            hop(self._begin, following, slot)

    def _forget(self, run: _AdmittedRun) -> None:
        self._runs.discard(run)
        run.run = None  # the two know each other, and would wait for the garbage collector
        if not self._runs:
            self._all_ended.notify_all()

    def enter(self) -> None:
        """Count a request that has started: close waits until it, and its callback, are over."""
        with self._lock:
            self._open_request_count += 1

    def leave(self) -> None:
        """Count a request that is over."""
        with self._lock:
            self._open_request_count -= 1
            if not self._open_request_count:
                self._all_ended.notify_all()

    def place_of(self, bindings: Bindings) -> str:
        """Say where a run is, for ``repr``: waiting for a slot, or in a stage."""
        for run in list(self._runs):
            if run.bindings is bindings:
                return ", waiting for a slot" if run.run is None else f", {run.run.place}"
        return ""

    def stop_all(self, make_error: Callable[[], BaseException]) -> None:
        """Refuse new runs and stop those under way; does not wait for them."""
        with self._lock:
            self.is_closed = True
            runs = list(self._runs)
        for run in runs:
            run.stop.set(make_error())

    def wait_until_over(self, timeout_s: float | None) -> bool:
        """Block until no run and no request is left; False on timeout."""
        give_up_at = None if timeout_s is None else monotonic() + timeout_s
        with self._lock:
            while self._runs or self._open_request_count:
                left_s = None if give_up_at is None else give_up_at - monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._all_ended.wait(None if left_s is None else min(left_s, _LONGEST_WAIT_S))
        return True


_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2  # infinity is allowed, and a lock's timeout is not
