"""Slots, and the runs on their way through them: the shell around the admission queue.

Theory of operation. Every run of a network comes in by :meth:`RunAdmission.start`. One that gets a
slot starts on the thread that called or that freed the slot; one that is stopped while it waits
never reaches the device. A slot is free again when its run's last token has fired, whatever became
of the caller meanwhile. Runs and open requests are counted, so that a close can wait for them.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter_ns
from typing import Protocol

from ..errors import (
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
)
from ..executors import NOW, Ready, Then, hop
from .admission import AdmissionQueue
from .bindings import Bindings
from .inline_gate import InlineGate
from .pipeline import GraphRun, PipelineRun, Stage, Stop, nobody
from .tracing import SpanRecorder

__all__ = ["RunAdmission", "Slot"]

_log = logging.getLogger("aioinfer")
_STUCK = "a slot of network %s cannot let go"


class Slot:
    """The device memory one run occupies, first stage to last token, and its stages.

    The stage functions read ``bindings``, which are there while a run has the slot.
    """

    bindings: Bindings
    stop: Stop
    stages: Sequence[Stage] = ()
    may_run_inline = False
    """True says that the stages compute with one thread, block on nothing and call no user code, so
    that a run of a few microseconds may stay on its caller's thread, event loops included; that
    their executors lend lanes; and that a run whose stages have not come to their end may start
    again from the first."""

    def start(
        self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder
    ) -> PipelineRun | GraphRun:
        """Send the bindings through the stages; ``then`` comes exactly once. Returns the run."""
        run = PipelineRun(self.stages, stop, then, recorder, self.bindings.mark())
        run.start(after)
        return run

    def release(self) -> None:
        """(optional) Let go of what belonged to the run that has ended."""
        del self.bindings, self.stop


_plain_start = Slot.start


class CountedRun(Protocol):
    """What the admission has to know of a run: of its own, and of those that stay inline."""

    stop: Stop
    bindings: Bindings

    @property
    def place(self) -> str:
        """Where it is, for messages."""


class _AdmittedRun(PipelineRun):
    """A run on its way through a network, from start to its last token.

    Slots that start runs in a way of their own have ``own_run`` go through the stages.
    """

    __slots__ = ("_admission", "after", "bindings", "own_run", "slot", "stop")

    def __init__(
        self, admission: RunAdmission, bindings: Bindings, stop: Stop, after: Ready, then: Then
    ) -> None:
        super().__init__((), stop, then, admission.recorder, bindings.mark())
        self._admission, self.bindings = admission, bindings
        self.stop, self.after = stop, after
        self.slot: Slot | None = None
        self.own_run: PipelineRun | GraphRun | None = None

    @property
    def place(self) -> str:
        if self.own_run is not None:
            return self.own_run.place
        return super().place if self._stages else "waiting for a slot"

    def stopped(self) -> None:
        self._admission._drop(self)

    def begin(self, slot: Slot) -> None:
        """Go through the slot's stages, which have the run's bindings."""
        self._stages = slot.stages
        self._step(self.after, None)

    def take_then(self) -> Then:
        """Hand out whom to tell, once; an ended run keeps nobody alive."""
        then, self._then = self._then, nobody
        return then

    def ended(self, ready: Ready, error: BaseException | None) -> None:
        """Free the slot when the last token fires, before anybody is told, and tell."""
        then = self.take_then()
        if ready is NOW:
            gate = self._admission.gate
            if gate is not None and error is None:
                gate.time_of(self.bindings.inputs).note(self.service_ns)
            self._admission._release(self)
        else:
            ready.when_ready(self._released)
        hop(then, ready, error)

    _end = ended

    def _released(self, _late: BaseException | None) -> None:
        self._admission._release(self)


class RunAdmission:
    """The slots of one network and its runs. Thread-safe; ``network`` is its name, for messages.

    ``closed_error`` makes the error for a run that comes too late. With ``most_waiting`` runs in
    the queue, requests are refused that would have to wait as well; 0: none is.
    """

    def __init__(
        self, network: str, closed_error: Callable[[], ClosedError], most_waiting: int = 0
    ) -> None:
        self.recorder = SpanRecorder()
        self.slot_count = 0
        self.first_run_ns = 0
        """When the first run came; 0 before."""
        self.is_closed = False
        self.lone_run_count = 0
        """How many runs have finished without a slot, on the lane that the executor lends."""
        self.gate: InlineGate | None = None
        """Which runs may stay on their caller's thread; None: none may."""
        self._network, self._closed_error = network, closed_error
        self._lock = threading.Lock()
        self._all_ended = threading.Condition(self._lock)
        self._queue: AdmissionQueue[Slot, _AdmittedRun] = AdmissionQueue((), most_waiting)
        self._runs: set[CountedRun] = set()
        self._outcomes: Counter[str] = Counter()
        self._open_request_count = 0
        self._is_waited_for = False

    @property
    def run_count(self) -> int:
        """How many runs wait for a slot or have one."""
        return len(self._runs)

    @property
    def waiting_count(self) -> int:
        """How many runs wait for a slot."""
        return self._queue.waiting_count

    @property
    def is_full(self) -> bool:
        """True if a run that comes now and may be refused is; out of date as soon as it is read."""
        return self._queue.is_full

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

    def start(
        self,
        bindings: Bindings,
        stop: Stop,
        after: Ready,
        then: Then,
        *,
        may_refuse: bool = False,
    ) -> None:
        """Start a run as soon as a slot is free; raises ClosedError, and keeps nothing, if closed.

        With ``may_refuse``, OverloadedError in the same way, if it would wait and the queue is
        full. Otherwise ``then`` comes exactly once. Never blocks.
        """
        run = _AdmittedRun(self, bindings, stop, after, then)
        with self._lock:
            if self.is_closed:
                raise self._closed_error()
            if may_refuse and self._queue.is_full:
                self._outcomes["refused"] += 1
                raise self._overloaded_error()
            self._runs.add(run)
            if not self.first_run_ns:
                self.first_run_ns = perf_counter_ns()
            slot = run.slot = self._queue.offer(bindings.ticket, run)
        self.recorder.arrive(bindings)
        if slot is None:
            stop.when_set(run.stopped)
            return
        hop(self._begin, run, slot)

    def _overloaded_error(self) -> OverloadedError:
        return OverloadedError(
            f"network {self._network} has {self._queue.waiting_count} runs waiting for a slot, as "
            f"many as MAX_QUEUED_REQUESTS allows; come back later, or load it with a higher "
            f"MAX_QUEUED_REQUESTS (0: no bound)"
        )

    def _begin(self, run: _AdmittedRun, slot: Slot) -> None:
        slot.bindings, slot.stop = run.bindings, run.stop
        if run.stop.error is not None:
            run.ended(run.after, run.stop.error)
            return
        if type(slot).start is _plain_start:
            run.begin(slot)
            return
        try:
            started = slot.start(run.stop, run.after, run.ended, self.recorder)
        except Exception as error:  # the backend's own; the run has not begun
            run.ended(run.after, error)
            return
        with self._lock:
            if run in self._runs:  # else it has ended meanwhile
                run.own_run = started

    def take_slot(self, run: CountedRun) -> Slot | None:
        """Count a run that begins now, and give it a slot; pair it with ``end`` or ``give_back``.

        None, and nothing is kept, if it would have to wait for a slot, or the network is closed.
        """
        with self._lock:
            if self.is_closed:
                return None
            slot = self._queue.take()
            if slot is not None:
                self._runs.add(run)
            return slot

    def end(self, run: CountedRun, slot: Slot, error: BaseException | None) -> None:
        """Count the outcome of a run that took its slot itself, and let the next one have it."""
        try:
            slot.release()
        except Exception:
            _log.exception(_STUCK, self._network)
        with self._lock:
            self._outcomes["finished" if error is None else _outcome_of(error)] += 1
            self._runs.discard(run)
            following = self._queue.release(slot)
            if following is None and not self._is_waited_for:
                return
            if following is not None:
                following.slot = slot
            elif not self._runs:
                self._all_ended.notify_all()
        if following is not None:
            self._begin_following(following, slot)

    def give_back(self, run: CountedRun, slot: Slot) -> None:
        """Let the next run have a slot that was taken in vain."""
        self._let_go(slot)
        with self._lock:
            self._forget(run)
            following = self._hand_over(slot)
        if following is not None:
            self._begin_following(following, slot)

    def _drop(self, run: _AdmittedRun) -> None:
        """End a stopped run that waits for a slot; one that has a slot ends by itself."""
        with self._lock:
            if not self._queue.drop(run):
                return
            self._forget(run)
        hop(run.take_then(), run.after, run.stop.error)

    def _release(self, run: _AdmittedRun) -> None:
        slot = run.slot
        assert slot is not None
        self._let_go(slot)
        with self._lock:
            run.own_run = None  # the two know each other, and would wait for the garbage collector
            self._forget(run)
            following = self._hand_over(slot)
        if following is not None:
            self._begin_following(following, slot)

    def _let_go(self, slot: Slot) -> None:
        try:
            slot.release()
        except Exception:  # the backend's own; the next run must not wait for ever
            _log.exception(_STUCK, self._network)

    def _hand_over(self, slot: Slot) -> _AdmittedRun | None:
        following = self._queue.release(slot)
        if following is not None:
            following.slot = slot
        return following

    def _begin_following(self, run: _AdmittedRun, slot: Slot) -> None:
        run.stop.forget(run.stopped)
        hop(self._begin, run, slot)

    def _forget(self, run: CountedRun) -> None:
        self._runs.discard(run)
        if self._is_waited_for and not self._runs:
            self._all_ended.notify_all()

    def count_outcome(self, error: BaseException | None) -> None:
        """Count a request that has ended."""
        with self._lock:
            self._outcomes[_outcome_of(error)] += 1

    def outcomes(self) -> Counter[str]:
        """Copy the count of ended requests by outcome."""
        with self._lock:
            return self._outcomes + Counter(finished=self.lone_run_count)

    def enter(self) -> None:
        """Count a request that has started: close waits until it, and its callback, are over."""
        with self._lock:
            self._open_request_count += 1

    def leave(self) -> None:
        """Count a request that is over."""
        with self._lock:
            self._open_request_count -= 1
            if self._is_waited_for and not self._open_request_count:
                self._all_ended.notify_all()

    def place_of(self, bindings: Bindings) -> str:
        """Say where a run is, for ``repr``: waiting for a slot, or in a stage."""
        for run in list(self._runs):
            if run.bindings is bindings:
                return f", {run.place}"
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
            self._is_waited_for = True
            while self._runs or self._open_request_count:
                left_s = None if give_up_at is None else give_up_at - monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._all_ended.wait(None if left_s is None else min(left_s, _LONGEST_WAIT_S))
        return True


_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2  # infinity is allowed, and a lock's timeout is not


def _outcome_of(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, RequestCancelledError):
        return "cancelled"
    if isinstance(error, DeadlineExceededError):
        return "expired"
    return "aborted" if isinstance(error, ClosedError) else "failed"
