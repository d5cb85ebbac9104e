"""The way of short runs that are like the one before: what was decided for that is not asked again.

Theory of operation. Most short runs of a network have arrays of the types and shapes that the one
before had. That one has been checked, counted in rows, given a plan and a program, and has gone
through its stage; what was found on the way is kept (:class:`AlikeRuns`, by the backend), and the
next run whose arrays are exactly so is computed by one call on the lane for callers. It is a run as
any other: it has a slot and a Stop, a close waits for it, and others may cancel it. Whatever is not
as it was, or is not here at once (slot, lane), leaves the run to ``inline_route.py``, which says
what is wrong, if anything is. No error of a run comes here to an end of its own: it goes through
``RunEnd.finish``, as one that was stopped does.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any, NamedTuple

from ...executors import TaskExecutor
from ...executors.fork import ProcessMark
from ...executors.interrupt import (
    default_int_handler,
    get_sigint_handler,
    held_interrupt,
    is_main_thread,
    set_sigint_handler,
)
from ..loops.inline_turn import InlineTurn
from .admission import ticket_of
from .bindings import NO_TENSORS, Bindings
from .inline_gate import ServiceTime
from .run import Run, RunOwner
from .run_admission import RunAdmission
from .slot import AlikeRuns
from .stage import Stage

__all__ = ["AlikeRoute"]


class _Known(NamedTuple):
    """What a run has left for those like it."""

    runs: AlikeRuns
    stage: Stage
    time: ServiceTime


class AlikeRoute:
    """The way of one network's runs that are like the one before. Thread-safe.

    ``executor`` lends the lane; ``run_ids`` numbers the runs that are of no request.
    """

    def __init__(
        self,
        admission: RunAdmission[Run],
        executor: TaskExecutor,
        process: ProcessMark,
        run_ids: Iterator[int],
    ) -> None:
        self._admission, self._executor = admission, executor
        self._process, self._run_ids = process, run_ids
        self._record = admission.recorder.record
        self._known: _Known | None = None

    def learn(self, runs: AlikeRuns | None, stage: Stage, time: ServiceTime) -> None:
        """Note what the latest inline run has left; None: nothing, as its like need more."""
        known = self._known
        if runs is None:
            self._known = None
        elif known is None or known.runs is not runs:
            self._known = _Known(runs, stage, time)

    def forget(self) -> None:
        """Drop what is known, when no run is left and none may come."""
        self._known = None

    def carry(self, inputs: Any, request: RunOwner | None, turn: InlineTurn) -> Run | None:
        """Carry a run to its end on this thread, and return it; None: nothing was kept.

        One that could not have what it needs is returned, too, and has not ended: it is to be
        launched. Raises RequestBusyError.
        """
        known = self._known
        if known is None:
            return None
        time = known.time
        if not (time.is_short or (turn.may_block and time.is_bearable and self._executor.is_idle)):
            return None
        taken = known.runs.take(inputs)
        if taken is None:
            return None
        if get_sigint_handler() is not default_int_handler or not is_main_thread():
            return self._carry(known, inputs, taken, request, turn)
        interrupt = held_interrupt()  # raised amid this, it would lose the slot
        set_sigint_handler(interrupt)
        try:
            run = self._carry(known, inputs, taken, request, turn)
        finally:
            set_sigint_handler(default_int_handler)
        if interrupt.has_come:
            raise KeyboardInterrupt
        return run

    def _carry(
        self,
        known: _Known,
        inputs: dict[str, Any],
        taken: tuple[Any, ...],
        request: RunOwner | None,
        turn: InlineTurn,
    ) -> Run | None:
        thread, admission = turn.thread, self._admission
        lane = None if thread.is_hopping or thread.is_own else self._executor.borrow_lane()
        if lane is None:
            return None
        thread.is_hopping = True
        error: BaseException | None = None
        try:
            try:
                if not (self._process.is_current and known.runs.is_current):
                    return None
                arrived_ns = perf_counter_ns()
                results: dict[str, Any] = {}
                run_id = next(self._run_ids) if request is None else request.id
                bindings = Bindings(
                    inputs.copy(), ticket_of(0), run_id, NO_TENSORS, results, None, arrived_ns
                )
                run = Run(admission, bindings)
                before, has_slot = None, False
                if request is not None:
                    run.request, before = request, request.become_busy(run)
                try:
                    has_slot = admission.enter(run, may_wait=False)
                finally:
                    if not has_slot and request is not None:
                        request.restore(run, before)
                if not has_slot:
                    return run
                run.is_inline = True
                stop = run.stop
                try:
                    started_ns = perf_counter_ns()
                    try:
                        known.runs.compute(taken, results, stop)
                    finally:
                        ended_ns = perf_counter_ns()
                        mark = bindings.run_id, bindings.ticket[1], arrived_ns
                        self._record(mark, known.stage, lane, arrived_ns, started_ns, ended_ns)
                    known.time.note(ended_ns - started_ns, is_inline=not turn.may_block)
                except BaseException as raised:
                    error = raised
            finally:
                lane.give_back()
            try:
                if error is not None or stop.error is not None or not run.finish_well():
                    run.finish(error or stop.error)
            except BaseException as raised:  # no memory for the call
                run.end_again(raised)
            turn.used_ns += run.ended_ns - arrived_ns
            return run
        finally:
            if thread.hops:
                thread.end_hop()
            thread.is_hopping = False
            del error
