"""Slots, and the runs on their way through them: the shell around the admission queue.

A run that waits begins on the thread that gave the slot back; one that is stopped while it waits
never reaches the device. Runs are kept until they leave, a request's after its callback, so that a
close can wait for them.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic, perf_counter_ns
from typing import Generic, Protocol, TypeVar

from ...errors import (
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    Place,
    RequestCancelledError,
)
from ..properties.properties import UNBOUNDED
from ..tracing.arrivals import Arrivals
from ..tracing.durations import COUNT_AT, DurationCounts, Durations
from ..tracing.recorder import SpanRecorder
from .admission import AdmissionQueue
from .bindings import NO_BINDINGS, WARMING, Bindings
from .inline_gate import InlineGate
from .slot import Slot
from .stage import NO_STOP, Stop

__all__ = ["RunAdmission"]

_log = logging.getLogger("aioinfer")
_plain_release = Slot.release


class AdmittedRun(Protocol):
    """What the admission asks of a run, and writes into it."""

    bindings: Bindings
    stop: Stop
    slot: Slot | None
    has_arrived: bool
    is_counted: bool
    waits_since_ns: int
    ended_ns: int
    is_ending: bool
    is_disowned: bool

    @property
    def place(self) -> str:
        """Where it is, for messages."""


R = TypeVar("R", bound=AdmittedRun)


class RunAdmission(Generic[R]):
    """The slots of one network and its runs. Thread-safe; ``name`` and ``device`` are for errors.

    ``closed_error`` makes the error for a run that comes too late. With ``most_waiting`` runs in
    the queue, requests are refused that would have to wait as well; UNBOUNDED: none is.
    """

    def __init__(
        self,
        name: str,
        device: str,
        closed_error: Callable[[], ClosedError],
        most_waiting: int = UNBOUNDED,
    ) -> None:
        self.recorder = SpanRecorder()
        self.arrivals = Arrivals()
        self.network = f"{name!r} on {device}"
        self.where: Place = {"network": name, "device": device}
        self.slot_count = 0
        self._make_slot: Callable[[], Slot] | None = None
        self._count_waiting: Callable[[], int] | None = None
        self._most_slots: float = 0
        self._most_waiting = most_waiting
        self.first_run_ns = 0
        """When the first run came that a caller asked for; 0 before."""
        self.is_closed = False
        self.gate: InlineGate | None = None
        """Which runs may stay on their caller's thread; None: none may."""
        self.kept_outputs: frozenset[str] = frozenset()
        """What callers get as Tensors, wherever it is."""
        self.runs: set[R] = set()
        """Those that are not over, callbacks included; each takes itself out."""
        self._closed_error = closed_error
        self.lock = threading.Lock()
        """Of the slots, the queue and the outcomes, those of single runs included."""
        self._all_ended: threading.Condition | None = None
        """Told when the last run leaves; made by the first thread that waits for that."""
        self._queue: AdmissionQueue[Slot, R] = AdmissionQueue((), most_waiting)
        self._idle = self._queue.idle
        self._finished = DurationCounts()
        self.note_finished = self._finished.uncounted.append
        """Notes how long a request took that has finished; for native code, which may do so while
        ``lock`` is free, as all others hold it."""
        self._others: defaultdict[str, DurationCounts] = defaultdict(DurationCounts)
        """How long requests took that finished, and others by their outcome."""
        self._waits = DurationCounts()
        """Of the runs whose wait for a slot is over; those that had one at once are not in it."""
        self.is_waited_for = False
        """A thread waits for the last run to leave; set before that looks at the runs."""

    @property
    def run_count(self) -> int:
        """How many runs wait for a slot or have one; out of date as soon as it is read."""
        return self.slot_count - len(self._idle) + self._queue.waiting_count

    @property
    def waiting_count(self) -> int:
        """How many runs wait for a slot, or, where slots wait for each other, in one."""
        inside = 0 if self._count_waiting is None else self._count_waiting()
        return self._queue.waiting_count + inside

    @property
    def is_full(self) -> bool:
        """True if a run that comes now and may be refused is; out of date as soon as it is read."""
        return self._queue.is_full

    def add_slots(self, slots: Sequence[Slot]) -> None:
        """Take in the network's slots; before the first run."""
        self._idle.extend(slots)
        self.slot_count += len(slots)

    def grow_slots(self, make: Callable[[], Slot], count_waiting: Callable[[], int]) -> None:
        """Have a slot made whenever none is idle: runs wait inside of them; before the first run.

        ``count_waiting`` says how many do. MAX_QUEUED_REQUESTS counts those beyond the slots that
        there are now.
        """
        self._make_slot, self._count_waiting = make, count_waiting
        self._most_slots = inf
        if self._most_waiting != UNBOUNDED:
            self._most_slots = self.slot_count + self._most_waiting
            self._queue.most_waiting = 0

    def free_slots(self) -> None:
        """Empty the slots when no run is left and none may come.

        They, their stages and the network hold each other, and all go at once then.
        """
        for slot in self._idle:
            vars(slot).clear()
        self._make_slot = self._count_waiting = None

    def enter(self, run: R, *, may_wait: bool = True, may_refuse: bool = False) -> bool:
        """Count a run that comes, and give it an idle slot; False: it waits for one.

        Of one that may not wait nothing is kept then, nor if the network is closed. Else that
        raises ClosedError, and with ``may_refuse`` OverloadedError if it would wait and the queue
        is full; nothing is kept either. Never blocks.
        """
        with self.lock:
            if not self._idle and self.slot_count < self._most_slots and self._make_slot:
                self._idle.append(self._make_slot())
                self.slot_count += 1
            has_slot = bool(self._idle) and not self.is_closed
            if not has_slot:
                if not may_wait:
                    return False
                if self.is_closed:
                    raise self._closed_error()
                if may_refuse and self._queue.is_full:
                    raise self._overloaded_error()
            self.runs.add(run)
            try:
                if not (run.has_arrived or run.bindings.arrived_ns == WARMING):
                    run.has_arrived = True  # in line: each call of a short run shows
                    if not self.first_run_ns:
                        self.first_run_ns = perf_counter_ns()
                    if self.arrivals.has_open_batch:
                        self.arrivals.arrive(run.bindings.inputs)
                    else:
                        self.arrivals.fixed_count += 1
                if has_slot:
                    run.slot = self._idle.pop()
                else:
                    run.waits_since_ns = perf_counter_ns()
                    self._queue.offer(run.bindings.ticket, run)
            except BaseException:  # no memory: it has not come, and its slot would be lost
                self.runs.discard(run)
                raise
        return has_slot  # and not what it has by now: what gives it a slot later begins it

    def idle_terms(self) -> tuple[tuple[Callable[[], object], bool], ...]:
        """Return what answers whether a run would have a slot now, for the terms of atomic runs."""
        return (self.lock.locked, False), (self._idle.__len__, True)

    def lend(self, run: R, outer: RunAdmission[R]) -> bool:
        """Give a run of a network around this one an idle slot, where it is carried through.

        Both know the run until ``outer`` finishes it, which gives the slot back; the thread that
        carries it counts its arrival. False: no slot is idle, or this network is closed; nothing is
        kept.
        """
        with self.lock:
            if not self._idle or self.is_closed:
                return False
            try:
                self.runs.add(run)
                outer.runs.add(run)
            except BaseException:  # no memory
                self.runs.discard(run)
                raise
            slot = run.slot = self._idle.pop()
            slot.lender, run.has_arrived = self, True
            if not self.first_run_ns:
                self.first_run_ns = perf_counter_ns()
        if not outer.first_run_ns:
            outer.first_run_ns = self.first_run_ns
        return True

    def expect(self, run: R) -> None:
        """Have a close wait for, or stop, a run that will enter later; raises ClosedError."""
        with self.lock:
            if self.is_closed:
                raise self._closed_error()
            self.runs.add(run)

    def finish(self, run: R, error: BaseException | None, *, counts: bool = True) -> R | None:
        """Take back the slot of a run, if it has one, and return the run that has it now.

        A slot that was lent goes back to the network that has lent it.

        ``counts`` says that the caller gets the outcome, at ``run.ended_ns``, which is counted
        unless it was before; ``error`` is None where it has a result. The run that is returned is
        to be begun; this one stays among those that a close waits for.
        """
        slot, following = run.slot, None
        lender = None if slot is None else slot.lender
        if slot is not None and type(slot).release is not _plain_release:
            try:
                try:
                    slot.release()
                except MemoryError:  # the next run must not find there what this one has left
                    slot.release()
            except Exception:  # the backend's own; the next run must not wait for ever
                _log.exception("a slot of network %s could not be released", self.network)
        with self.lock:
            if counts and not run.is_disowned:
                run.is_ending = True
                if not run.is_counted:
                    taken = self._finished
                    if error is not None:
                        taken, run.is_counted = self._others[_outcome_of(error)], True
                    taken.uncounted.append(run.ended_ns - run.bindings.arrived_ns)
                    if len(taken.uncounted) >= COUNT_AT:
                        taken.count_kept()
            if slot is not None and lender is None:
                slot.bindings, slot.stop = NO_BINDINGS, NO_STOP
                if not self._queue.waiting:
                    self._idle.append(slot)
                else:
                    following = self._followed_by(slot)
                run.slot = None  # last: without memory for the rest it is finished again
        if lender is not None and slot is not None:
            with lender.lock:
                slot.bindings, slot.stop = NO_BINDINGS, NO_STOP
                if not lender._queue.waiting:
                    lender._idle.append(slot)
                else:
                    following = lender._followed_by(slot)
                run.slot = slot.lender = None
            lender.runs.discard(run)
            if lender.is_waited_for:
                lender.tell_closer()
        return following

    def _followed_by(self, slot: Slot) -> R:
        """Give a slot to the next of those that wait. Locked."""
        following = self._queue.release(slot)
        assert following is not None
        following.slot = slot
        with suppress(MemoryError):  # which loses a measurement, and no run
            self._note_wait(following)
        return following

    def note_waits(self, durations_ns: Sequence[int]) -> None:
        """Count how long callers have waited inside of slots."""
        with self.lock:
            self._waits.uncounted.extend(durations_ns)
            if len(self._waits.uncounted) >= COUNT_AT:
                self._waits.count_kept()

    def count_together(self, durations_ns: Sequence[int], error: BaseException | None) -> None:
        """Count the outcomes of callers that share a run, or the outcome of one."""
        with self.lock:
            taken = self._finished if error is None else self._others[_outcome_of(error)]
            taken.uncounted.extend(durations_ns)
            if len(taken.uncounted) >= COUNT_AT:
                taken.count_kept()

    def count_outcome(self, run: R, error: BaseException) -> None:
        """Count a run whose caller gets the outcome now, though it ends later or never began."""
        with self.lock:
            if not run.is_counted:
                run.is_counted = True
                latencies = self._others[_outcome_of(error)]
                latencies.note(perf_counter_ns() - run.bindings.arrived_ns)

    def disown(self, run: R) -> bool:
        """End a run uncounted whose caller has an error of its launch; False: it has ended.

        If it has a slot or gets one, that is taken back by ``finish`` all the same.
        """
        with self.lock:
            run.is_disowned = run.is_disowned or not run.is_ending
            return run.is_disowned

    def drop(self, run: R) -> bool:
        """Take a stopped run out of the queue; False: it has or had a slot, and ends itself."""
        with self.lock:
            was_waiting = self._queue.drop(run)
            if was_waiting:
                with suppress(MemoryError):
                    self._note_wait(run)
        return was_waiting

    def _note_wait(self, run: R) -> None:
        if run.bindings.arrived_ns != WARMING:
            self._waits.note(perf_counter_ns() - run.waits_since_ns)

    def leave(self, run: R) -> None:
        """Stop a close from waiting for a run that is over, callback and all. Mostly lock-free."""
        self.runs.discard(run)
        if self.is_waited_for:
            self.tell_closer()

    def tell_closer(self) -> None:
        """Wake threads that wait for the last run to leave, if none is left."""
        with self.lock:
            if self._all_ended is not None and not self.runs:
                self._all_ended.notify_all()

    def _overloaded_error(self) -> OverloadedError:
        waiting_count = self._queue.waiting_count
        if self._make_slot is not None:
            waiting_count += self._most_waiting
        return OverloadedError(
            f"network {self.network} has {waiting_count} runs waiting for a slot, as "
            f"many as MAX_QUEUED_REQUESTS allows; come back later, or load it with a higher "
            f"MAX_QUEUED_REQUESTS ('UNBOUNDED': any number may wait)",
            waiting_count=waiting_count,
            limit=self._most_waiting,
            **self.where,
        )

    def latencies(self) -> dict[str, Durations]:
        """Return how long requests took by outcome, from their arrival to the answer."""
        with self.lock:
            latencies = {outcome: taken.picture() for outcome, taken in self._others.items()}
            finished = self._finished.picture()
        return {"finished": finished, **latencies} if finished.count else latencies

    def slot_wait(self) -> Durations:
        """Return how long runs waited for a slot, with those that were stopped before they had it.

        A run that found an idle slot waited for 0 s. Those that wait now are not counted yet, those
        of a warm-up never.
        """
        with self.lock:
            self._waits.count_kept()
            waiting = [run for run in self._queue.waiting if run.bindings.arrived_ns != WARMING]
            over_count = self.arrivals.count - len(waiting)
            if self._count_waiting is not None:
                over_count -= self._count_waiting()
            return self._waits.picture(max(0, over_count - self._waits.count))

    def place_of(self, bindings: Bindings) -> str:
        """Return where a run is, for ``repr``: waiting for a slot, or in a stage."""
        for run in list(self.runs):
            if run.bindings is bindings:
                return f", {run.place}"
        return ""

    def stop_all(self, make_error: Callable[[], BaseException]) -> None:
        """Refuse new runs and stop those under way; does not wait for them."""
        with self.lock:
            self.is_closed = True
            runs = list(self.runs)
        for run in runs:
            run.stop.set(make_error())

    def wait_until_over(self, timeout_s: float | None) -> bool:
        """Block until no run and no request is left; False on timeout."""
        give_up_at = None if timeout_s is None else monotonic() + timeout_s
        with self.lock:
            self._all_ended = self._all_ended or threading.Condition(self.lock)
            self.is_waited_for = True
            while self.runs:
                left_s = None if give_up_at is None else give_up_at - monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._all_ended.wait(None if left_s is None else min(left_s, _LONGEST_WAIT_S))
        return True


_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2  # infinity is allowed, and a lock's timeout is not


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, RequestCancelledError):
        return "cancelled"
    if isinstance(error, DeadlineExceededError):
        return "expired"
    if isinstance(error, OverloadedError):
        return "refused"
    return "aborted" if isinstance(error, ClosedError) else "failed"
