"""Short runs, from start to end on the thread that asks for them.

Theory of operation. A run that stays with its caller takes a slot like any other, its stages find
their bindings there, and spans and outcome are counted. Left out are the queues between, and the
objects that stand in them. The stages run on the lane that their executor lends to callers, in the
context of that lane, as a hop of this thread: so what a stage sees, and what it may call, is what
it sees and may call on a worker. A run that cannot be carried to its end (others wait, the lane is
taken, a plan is missing) leaves nothing behind but the spans of its first stages, and starts again
in the usual way.

A backend may shorten the way once more, for runs that nobody else knows of (``await
network.infer``): then even the slot is left out, since who has the lane is alone there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from time import perf_counter_ns
from typing import Any, Protocol

from ..executors import NOW, Lane, TaskExecutor
from ..executors.base import checked, hop_now
from ..executors.interrupt import can_interrupt, held_interrupt
from .admission import Ticket
from .bindings import Bindings, NodeProfile
from .inline_gate import InlineGate, ServiceTime
from .inline_turn import InlineTurn
from .pipeline import NO_MARK, Stage, Stop
from .run_admission import CountedRun, RunAdmission
from .slot import Slot
from .tracing import RunMark

__all__ = ["CarriedRun", "Compute", "InlineRoute"]

Compute = Callable[[dict[str, Any], Lane], dict[str, Any]]
"""Takes checked inputs, returns results; as a stage's function does with bindings."""

_FIRST = Ticket(0, 0)  # such a run never waits in a queue
_UNFINISHED = -1


class CarriedRun(CountedRun, Protocol):
    """A run that is told of its end in two steps: before and after its slot is free."""

    def end_inline(self, error: BaseException | None) -> BaseException | None:
        """Settle it and return the outcome; its slot is not free yet."""

    def tell(self) -> None:
        """Let everybody know who waits for it."""


class _OwnRun(Stop):
    """A run that only its caller knows: its own Stop, and no more."""

    __slots__ = ("bindings", "outcome_error")

    place = "running inline"
    outcome_error: BaseException | None

    def __init__(self, bindings: Bindings) -> None:
        super().__init__()
        self.bindings = bindings

    @property
    def stop(self) -> Stop:
        return self

    def end_inline(self, error: BaseException | None) -> BaseException | None:
        self.outcome_error = error
        return error

    def tell(self) -> None:
        """Do nothing: nobody waits."""


class InlineRoute:
    """The way of one network's short runs. Thread-safe.

    ``executor`` is where its last stage computes, and lends the lane; ``make_run_id`` numbers the
    runs that have no request.
    """

    def __init__(
        self,
        admission: RunAdmission,
        gate: InlineGate,
        executor: TaskExecutor,
        make_run_id: Callable[[], int],
    ) -> None:
        self._admission, self._gate, self._executor = admission, gate, executor
        self._record = admission.recorder.record
        self._make_run_id, self._run_id = make_run_id, -1
        self._compute: Compute | None = None
        self._mark: RunMark = NO_MARK

    def shorten(self, stage: Stage, compute: Compute) -> None:
        """Have runs without a request computed by this function, which stands for the one stage.

        For networks whose inputs have fixed shapes. The function neither knows of a slot nor waits;
        ``stage`` is what it does, for spans. Called once, before the first run.
        """
        self._compute, self._stage = compute, stage
        self._alike = Bindings({}, _FIRST)

    def wait_until_over(self) -> None:
        """Wait for a shortened run under way, once the network is closed; backends do, at last."""
        if self._compute is not None:
            self._executor.wait_for_borrower()

    def infer(
        self, inputs: dict[str, Any], turn: InlineTurn, has_profile: bool
    ) -> dict[str, Any] | None:
        """Return the results of a run without a request, or raise its error; None: not this way.

        ``inputs``: as checked. The time is put down to ``turn``, whatever the outcome.
        """
        time = self._gate.time_of(inputs)
        if not time.is_short:
            return None
        if self._run_id < 0:
            run_id = self._make_run_id()
            self._mark = run_id, 0, 0
            self._run_id = run_id
        if self._compute is not None and not has_profile and not can_interrupt():
            return hop_now(self._infer_alone, self._compute, inputs, time, turn)
        profile: list[NodeProfile] | None = [] if has_profile else None
        run = _OwnRun(Bindings(inputs, _FIRST, self._run_id, {}, {}, profile))
        if not can_interrupt():
            is_over = hop_now(self._carry, run, time, turn)
        else:
            with held_interrupt() as interrupt:  # raised amid this, it would lose the slot
                is_over = hop_now(self._carry, run, time, turn)
            if interrupt.has_come:
                raise KeyboardInterrupt
        if not is_over:
            return None
        error = run.outcome_error
        if error is None:
            return run.bindings.results
        try:
            raise error
        finally:
            del run, error  # the traceback keeps this frame, which must not keep them

    def _infer_alone(
        self, compute: Compute, inputs: dict[str, Any], time: ServiceTime, turn: InlineTurn
    ) -> dict[str, Any] | None:
        """Compute without a slot: the lane is the run's alone, and its place in the network too."""
        began_ns = perf_counter_ns()
        executor, admission = self._executor, self._admission
        lane = executor.borrow_lane()
        if lane is None:
            return None
        try:
            # Asked for with the lane in hand: whoever has closed the network waits for the lane.
            if admission.is_closed or admission.waiting_count:
                return None
            admission.recorder.arrive(self._alike)
            context = copy_context() if lane.context is None else lane.context
            started_ns = perf_counter_ns()
            try:
                results = context.run(compute, inputs, lane)
            except BaseException as error:
                admission.count_outcome(error)
                raise
            finally:
                ended_ns = perf_counter_ns()
                self._record(self._mark, self._stage, lane, started_ns, started_ns, ended_ns)
                time.note_inline(ended_ns - started_ns)
            admission.lone_run_count += 1
        finally:
            executor.return_lane(lane)
            turn.used_ns += perf_counter_ns() - began_ns  # the way there and back is most of it
        return results

    def is_for(self, run: CarriedRun, turn: InlineTurn) -> bool:
        """True if a request's run is worth the try to carry it."""
        time = self._gate.time_of(run.bindings.inputs)
        return time.is_short or (turn.may_block and time.is_bearable and self._executor.is_idle)

    def carry(self, run: CarriedRun, turn: InlineTurn) -> bool:
        """Carry a request's run to its end on this thread; False: nothing was kept."""
        time = self._gate.time_of(run.bindings.inputs)
        return hop_now(self._carry, run, time, turn) is True

    def _carry(self, run: CarriedRun, time: ServiceTime, turn: InlineTurn) -> bool:
        executor, admission = self._executor, self._admission
        started_ns = perf_counter_ns()
        lane = executor.borrow_lane()
        if lane is None:
            return False
        slot = admission.take_slot(run)
        if slot is None:
            executor.return_lane(lane)
            return False
        error: BaseException | None = None
        service_ns = _UNFINISHED
        slot.bindings, slot.stop = run.bindings, run.stop
        try:
            context = copy_context() if lane.context is None else lane.context
            service_ns = context.run(self._call, slot, lane, started_ns)
            if service_ns == _UNFINISHED:
                admission.give_back(run, slot)
                return False
            error = run.stop.error
        except BaseException as raised:
            error = raised
        finally:
            executor.return_lane(lane)
        try:
            admission.recorder.arrive(run.bindings)
            if error is None:
                if turn.may_block:
                    time.note(service_ns)
                else:
                    time.note_inline(service_ns)
            admission.end(run, slot, run.end_inline(error))
            run.tell()
            turn.used_ns += perf_counter_ns() - started_ns
        finally:
            del run, error  # the error's traceback keeps this frame, which must not keep them
        return True

    def _call(self, slot: Slot, lane: Lane, queued_ns: int) -> int:
        """Run the stages and return the time they took in all; _UNFINISHED if one has to wait."""
        stop, mark, service_ns = slot.stop, slot.bindings.mark(), 0
        for stage in slot.stages:
            if stop.error is not None:
                raise stop.error
            executor = stage.executor
            place = lane if executor is self._executor else executor.borrow_lane()
            if place is None:
                return _UNFINISHED
            started_ns = perf_counter_ns()
            try:
                ready = stage.function(place)
            finally:
                ended_ns = perf_counter_ns()
                if place is not lane:
                    executor.return_lane(place)
                self._record(mark, stage, place, queued_ns, started_ns, ended_ns)
            if ready is not NOW and (not checked(ready).is_ready or ready.error is not None):
                return _UNFINISHED
            service_ns += ended_ns - started_ns
            queued_ns = ended_ns
        return service_ns
