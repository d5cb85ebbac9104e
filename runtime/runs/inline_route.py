"""Short runs, from start to end on the thread that asks for them.

A run that stays with its caller takes a slot like any other, its stages are the same, and spans and
outcome are counted. Left out are the queues between. The stages run on the lanes that their
executors lend to callers, in the context of the lane, as a hop of this thread: so what a stage
sees, and what it may call, is what it sees and may call on a worker. A run that cannot be carried
to its end (others wait, the lane is taken, a plan is missing) leaves nothing behind but the spans
of its first stages, and starts again in the usual way.

A network around another one may lend its runs that one's way: they are lent a slot inside, and have
none of their own network. Each is counted once, and the counts of both networks include it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ...executors import NOW, Lane, Ready, TaskExecutor, hand_over
from ...executors.base import checked
from ...executors.interrupt import (
    default_int_handler,
    get_sigint_handler,
    held_interrupt,
    is_main_thread,
    set_sigint_handler,
)
from ..loops.inline_turn import InlineTurn
from ..tracing.arrivals import Arrivals
from .atomic_route import AtomicRoute
from .inline_gate import InlineGate, ServiceTime
from .run import Run
from .run_admission import RunAdmission
from .stage import Again

if TYPE_CHECKING:
    from ..tensors.tensor import Port

__all__ = ["InlineRoute"]


class InlineRoute:
    """The way of one network's short runs. Thread-safe.

    ``executor`` is where its last stage computes, and lends the lane. ``outer`` is the admission of
    a network around it, whose runs these are.
    """

    def __init__(
        self,
        admission: RunAdmission[Run],
        gate: InlineGate,
        executor: TaskExecutor,
        outer: RunAdmission[Run] | None = None,
    ) -> None:
        self._admission, self._executor, self._outer = admission, executor, outer
        self.gate = gate
        """Knows which runs are short."""
        self.atomic: AtomicRoute | None = None
        """The way of those that are like the one before; None: there is none."""
        self.lent = Arrivals()
        """The runs of an outer network that it has carried, and that one caller asked for each."""
        self._record = admission.recorder.record

    def around(self, outer: RunAdmission[Run], ports: Sequence[Port]) -> InlineRoute:
        """Make the way of the runs of a network around this one, with the same inputs."""
        route = InlineRoute(self._admission, self.gate, self._executor, outer)
        route.lent.count_batches_of(ports)
        outer.arrivals.include(route.lent)
        self._admission.arrivals.include(route.lent)
        return route

    def carry(self, run: Run, turn: InlineTurn) -> bool:
        """Carry a short run of a caller to its end on this thread; False: nothing was kept.

        The time is put down to ``turn``, whatever the outcome. Raises RequestBusyError.
        """
        if run.downloads is not None:
            return False
        gate = self.gate
        time = gate.only or gate.time_of(run.bindings.inputs)
        if not (time.is_short or (turn.may_block and self._may_be_long(time))):
            return False
        if get_sigint_handler() is not default_int_handler or not is_main_thread():
            return self._carry(run, time, turn)
        interrupt = held_interrupt()  # raised amid this, it would lose the slot
        set_sigint_handler(interrupt)  # what `with` does, without a call that may lack memory
        try:
            is_over = self._carry(run, time, turn)
        finally:
            set_sigint_handler(default_int_handler)
        if interrupt.has_come:
            raise KeyboardInterrupt
        return is_over

    def _may_be_long(self, time: ServiceTime) -> bool:
        return time.is_bearable and self._outer is None and self._executor.is_idle

    def _carry(self, run: Run, time: ServiceTime, turn: InlineTurn) -> bool:
        thread, request, outer = turn.thread, run.request, self._outer
        if outer is not None and outer.runs and outer.waiting_count:
            return False
        lane = None if thread.is_hopping or thread.is_own else self._executor.borrow_lane()
        if lane is None:
            return False
        thread.is_hopping = True
        error: BaseException | None = None
        has_slot, service_ns = False, 0
        try:
            try:
                before = None if request is None else request.become_busy(run)
                try:
                    if outer is None:
                        has_slot = self._admission.enter(run, may_wait=False)
                    else:
                        has_slot = self._admission.lend(run, outer)
                        if outer.is_closed and has_slot:
                            has_slot = False  # looked at late: its close may not have seen the run
                            self._refuse_late(run, outer)
                finally:
                    if not has_slot and request is not None:  # none is idle, or no memory
                        request.restore(run, before)
                if not has_slot:
                    return False
                try:
                    service_ns = self._go_through_stages(run, lane)
                    if service_ns >= 0:
                        time.note(service_ns, is_inline=not turn.may_block)
                        if self.atomic is not None and run.deadline is None:
                            try:
                                self._learn(self.atomic, run, time, lane)
                            except MemoryError:  # the run has been, and the next goes this way, too
                                self.atomic.forget()
                except BaseException as raised:
                    error = raised
            finally:
                lane.give_back()
            if outer is not None:
                arrivals = self.lent
                if run.bindings.shared is not None:  # its callers are counted where they are known
                    arrivals = self._admission.arrivals
                elif service_ns < 0:  # it is going to come inside once more
                    arrivals = outer.arrivals
                try:
                    if service_ns >= 0 or arrivals is outer.arrivals:
                        arrivals.arrive(run.bindings.inputs)
                except BaseException as raised:  # no memory
                    error = error or raised
            if service_ns < 0:
                run.take_back(before)
                return False
            try:
                if run.is_inside:
                    run.end_inside(error)
                else:
                    run.finish(error)
            except BaseException as raised:  # no memory for the call
                run.end_again(raised)
            turn.used_ns += run.ended_ns - run.bindings.arrived_ns
        finally:
            if thread.hops:
                thread.end_hop()
            thread.is_hopping = False
            del run, error  # the error's traceback keeps this frame, which must not keep them
        return True

    def _learn(self, atomic: AtomicRoute, run: Run, time: ServiceTime, lane: Lane) -> None:
        """Have the next run be compared with this one, which has come to the end of its stages."""
        slot = run.slot
        assert slot is not None
        is_one = len(slot.stages) == 1 and run.bindings.states is None
        runs = slot.alike_runs(lane) if is_one else None
        atomic.learn(runs, slot.stages[0], lane, run.bindings.inputs, time)

    def _refuse_late(self, run: Run, outer: RunAdmission[Run]) -> None:
        """Take the slot back of a run that has come to a closing network, which refuses it.

        It has come: a close that saw it has counted how it ended, as does the refusal.
        """
        following = outer.finish(run, None, counts=False)
        if following is not None:
            try:
                hand_over(following.begin_late)
            except MemoryError:  # for the call itself: it has not begun
                hand_over(following.begin_late)
        outer.leave(run)
        if run.bindings.shared is None:
            outer.arrivals.arrive(run.bindings.inputs)

    def _go_through_stages(self, run: Run, lane: Lane) -> int:
        """Run the stages of its slot, and return how long they took; below 0: not to their end."""
        slot, stop, bindings, executor = run.slot, run.stop, run.bindings, self._executor
        assert slot is not None
        try:
            if run.deadline is not None:
                run.start_timer()
            slot.bindings, slot.stop, run.is_inline = bindings, stop, True
            service_ns, queued_ns = 0, bindings.arrived_ns
            mark = bindings.run_id, bindings.ticket[1], queued_ns
            for stage in slot.stages:
                if stop.error is not None:
                    raise stop.error
                place = lane if stage.executor is executor else stage.executor.borrow_lane()
                if place is None:
                    return _UNFINISHED
                context = copy_context() if place.context is None else place.context
                ready: Ready | None = None
                started_ns = perf_counter_ns()
                try:
                    ready = context.run(stage.function, place)
                finally:
                    ended_ns = perf_counter_ns()
                    if place is not lane:
                        place.give_back()
                    if type(ready) is not Again:
                        self._record(mark, stage, place, queued_ns, started_ns, ended_ns)
                if ready is not NOW and (not checked(ready).is_ready or ready.error is not None):
                    return _UNFINISHED
                service_ns += ended_ns - started_ns
                queued_ns = ended_ns
            if stop.error is not None:
                raise stop.error
            return service_ns
        finally:
            del run, slot, stop, bindings  # as above


_UNFINISHED = -1
