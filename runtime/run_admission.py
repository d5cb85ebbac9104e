"""Slots, and the runs on their way through them: the shell around the admission queue.

Theory of operation. Every run of a network comes in by :meth:`RunAdmission.admit`. One that gets a
slot starts on the thread that called or that freed the slot; one that is stopped while it waits
never reaches the device. A slot is free again when its run's last token has fired, whatever became
of the caller meanwhile. Runs are kept until they leave, a request's after its callback, so that a
close can wait for them.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from ..errors import (
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
)
from ..executors import hop
from .admission import AdmissionQueue
from .bindings import Bindings
from .graph_run import GraphRun
from .inline_gate import InlineGate
from .pipeline import PipelineRun, Stop
from .slot import Slot
from .tracing import SpanRecorder

if TYPE_CHECKING:
    from .admitted_run import AdmittedRun

__all__ = ["CountedRun", "RunAdmission"]

_log = logging.getLogger("aioinfer")


class CountedRun(Protocol):
    """What the admission has to know of a run: of its own, and of those that stay inline."""

    stop: Stop
    bindings: Bindings

    @property
    def place(self) -> str:
        """Where it is, for messages."""


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
        self._queue: AdmissionQueue[Slot, AdmittedRun] = AdmissionQueue((), most_waiting)
        self._runs: set[CountedRun] = set()
        self._outcomes: Counter[str] = Counter()
        self._is_waited_for = False

    @property
    def run_count(self) -> int:
        """How many runs wait for a slot or have one; out of date as soon as it is read."""
        return self.slot_count - self._queue.idle_count + self._queue.waiting_count

    @property
    def open_run_count(self) -> int:
        """How many runs are not over, callbacks included."""
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

    def add_slots(self, slots: Sequence[Slot]) -> None:
        """Take in the network's slots; before the first run."""
        self._queue.add_slots(slots)
        self.slot_count += len(slots)

    def admit(self, run: AdmittedRun, *, may_refuse: bool = False) -> None:
        """Start a run as soon as a slot is free; raises ClosedError, and keeps nothing, if closed.

        With ``may_refuse``, OverloadedError in the same way, if it would wait and the queue is
        full. Otherwise it either begins and ends, or is dropped; whoever it is told by calls
        ``leave``. Never blocks.
        """
        with self._lock:
            if self.is_closed:
                raise self._closed_error()
            queue = self._queue
            if may_refuse and queue.is_full:
                self._outcomes["refused"] += 1
                raise self._overloaded_error()
            self._runs.add(run)
            if not self.first_run_ns:
                self.first_run_ns = perf_counter_ns()
            slot = run.slot = queue.offer(run.bindings.ticket, run)
        self.recorder.arrive(run.bindings)
        if slot is None:
            run.stop.when_set(run.stopped)
            return
        hop(run.begin, slot)

    def _overloaded_error(self) -> OverloadedError:
        return OverloadedError(
            f"network {self._network} has {self._queue.waiting_count} runs waiting for a slot, as "
            f"many as MAX_QUEUED_REQUESTS allows; come back later, or load it with a higher "
            f"MAX_QUEUED_REQUESTS (0: no bound)"
        )

    def note_own_run(self, run: AdmittedRun, own_run: PipelineRun | GraphRun) -> None:
        """Keep what goes through the stages for a run, unless that has ended meanwhile."""
        with self._lock:
            if run.slot is not None:
                run.own_run = own_run

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
        self._let_go(slot)
        with self._lock:
            self._outcomes["finished" if error is None else _outcome_of(error)] += 1
            following = self._hand_over(slot)
        self.leave(run)
        if following is not None:
            self._begin_following(following, slot)

    def give_back(self, run: CountedRun, slot: Slot) -> None:
        """Let the next run have a slot that was taken in vain."""
        self._let_go(slot)
        with self._lock:
            following = self._hand_over(slot)
        self.leave(run)
        if following is not None:
            self._begin_following(following, slot)

    def drop(self, run: AdmittedRun) -> None:
        """Let a stopped run go that waits for a slot; one that has a slot ends by itself."""
        with self._lock:
            if not self._queue.drop(run):
                return
        run.dropped()

    def vacate(self, run: AdmittedRun) -> None:
        """Have the slot of a request's run, if it has one, let go of it; ``settle`` comes next."""
        if run.slot is not None:
            self._let_go(run.slot)

    def settle(self, run: AdmittedRun, error: BaseException | None) -> None:
        """Count the outcome of a request's run, and free its vacated slot if it has one.

        The run stays among those that a close waits for until it leaves.
        """
        slot, following = run.slot, None
        with self._lock:
            self._outcomes["finished" if error is None else _outcome_of(error)] += 1
            if slot is not None:
                run.slot = run.own_run = None  # run and own run know each other
                following = self._hand_over(slot)
        if slot is not None and following is not None:
            self._begin_following(following, slot)

    def free(self, run: AdmittedRun) -> None:
        """Let the next run have the slot of one that has ended, which leaves."""
        slot = run.slot
        if slot is not None:
            self._let_go(slot)
            with self._lock:
                run.slot = run.own_run = None
                following = self._hand_over(slot)
            if following is not None:
                self._begin_following(following, slot)
        self.leave(run)

    def leave(self, run: CountedRun) -> None:
        """Let close wait no longer for a run that is over, callback and all. Mostly lock-free."""
        self._runs.discard(run)
        if self._is_waited_for:  # it is set before who waits looks at the runs
            with self._lock:
                if not self._runs:
                    self._all_ended.notify_all()

    def _let_go(self, slot: Slot) -> None:
        try:
            slot.release()
        except Exception:  # the backend's own; the next run must not wait for ever
            _log.exception("a slot of network %s cannot let go", self._network)

    def _hand_over(self, slot: Slot) -> AdmittedRun | None:
        following = self._queue.release(slot)
        if following is not None:
            following.slot = slot
        return following

    def _begin_following(self, run: AdmittedRun, slot: Slot) -> None:
        run.stop.forget(run.stopped)
        hop(run.begin, slot)

    def count_outcome(self, error: BaseException | None) -> None:
        """Count a request that has ended."""
        with self._lock:
            self._outcomes[_outcome_of(error)] += 1

    def outcomes(self) -> Counter[str]:
        """Copy the count of ended requests by outcome."""
        with self._lock:
            return self._outcomes + Counter(finished=self.lone_run_count)

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
            while self._runs:
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
