"""Run: one run of a network, from the caller's inputs to its end (``run_end.py``).

Theory of operation. A run enters the network's admission, goes through the stages of the slot that
it gets, and gives the slot back when its last token has fired. The thread that finishes a stage
hands the next one to its executor together with the :class:`Ready` token; no event loop is
involved. Stages that follow each other on one executor are one hop. The run's Stop, which it shares
with the runs inside it, is looked at before every stage, and inside of stages by their devices:
before the next of what they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Protocol

from ...errors import ClosedError, OverloadedError, RequestBusyError, RequestCancelledError
from ...executors import (
    NOW,
    Lane,
    Ready,
    TaskExecutor,
    Then,
    as_shortage,
    hand_over,
    hop,
)
from ...executors.interrupt import (
    can_interrupt,
    default_int_handler,
    get_sigint_handler,
    held_interrupt,
)
from ...executors.late_imports import late_imports
from ..tracing.recorder import RunMark
from .bindings import Bindings
from .deadline import Deadline
from .run_admission import RunAdmission
from .run_end import RunEnd
from .slot import Slot
from .stage import Again, Stage, Stop, new_stop_word, stop_if_interrupted

__all__ = ["Run", "RunOwner"]

_log = logging.getLogger("aioinfer")


class RunOwner(Protocol):
    """The request whose run it is, as far as the run is concerned."""

    id: int
    kept_states: Any
    """What its runs leave for the next; None on a network without state."""

    @property
    def callback_executor(self) -> TaskExecutor:
        """Where its callbacks run."""

    def become_busy(self, run: Run) -> Any:
        """Make this the last run, and return what was, for ``restore``; raises RequestBusyError."""

    def restore(self, run: Run, before: Any) -> None:
        """Have what the last run has left, as if this one had never been asked for."""

    def on_answered_early(self, run: Run) -> None:
        """Note that the caller was answered and the device is not done."""

    def on_ended(self, run: Run) -> Callable[[], None] | None:
        """Become idle, with the results in the handles; or busy with what the call launches."""


class Run(RunEnd):
    """One run of a network. Thread-safe.

    ``stop``, ``after`` and ``then`` are those of an outer network's run; one of a caller has none.
    """

    admission: RunAdmission[Run]
    # What most runs leave as it is, so that making one is cheap.
    request: RunOwner | None = None
    """The request whose run it is; None for one of ``network.infer``, of a stream, or inside."""
    userdata: Any = None
    deadline: Deadline | None = None
    """When the run is stopped, from its start on."""
    waits_since_ns = 0
    """When it began to wait for a slot; 0: it never did. Written by the admission."""
    _stages: Sequence[Stage] = ()
    _index = 0
    _queued_ns = 0
    _mark: RunMark = (0, 0, 0)
    downloads: TaskExecutor | None = None
    """Where it downloads inputs that other devices have kept, which blocks; None: it has none."""
    _has_begun = False
    _has_begun_late = False

    def __init__(
        self,
        admission: RunAdmission[Run],
        bindings: Bindings,
        stop: Stop | None = None,
        after: Ready = NOW,
        then: Then | None = None,
    ) -> None:
        self.admission, self.bindings = admission, bindings
        if stop is None:
            stop = Stop()
            # The thread that takes out the listener settles the run.
            stop.listeners, stop.word = [self._answer], new_stop_word()
        else:
            self._after, self._then, self.is_inside = after, then, True
        self.stop = stop

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if self.is_inline:
            return "running inline"
        if self._own_run is not None:
            return self._own_run.place
        if not self._stages:
            return "waiting for a slot"
        return f"in stage {self.stage!r}"

    @property
    def stage(self) -> str:
        """The stage that it is in, or those, if it is a graph; "" while it waits for a slot."""
        if self.is_inline:
            return "inline"
        if self._own_run is not None:
            return self._own_run.stage
        stages = self._stages
        return stages[min(self._index, len(stages) - 1)].name if stages else ""

    def cancel(self) -> None:
        """Stop it, unless its outcome is settled; the caller is answered at once."""
        if not self._is_settled:
            error = RequestCancelledError(
                f"{self.what} was cancelled",
                request_id=self.bindings.run_id,
                stage=self.stage,
                **self.admission.where,
            )
            self.stop.set(error)

    def start_timer(self) -> None:
        """Stop it at its deadline, unless it has ended by then."""
        deadline = self.deadline
        if deadline is None:
            return
        self.stop.deadline_s = deadline.at_s
        if deadline.has_passed:
            self._expire()
        else:
            self._timer = deadline.clock.call_at(deadline.at_s, self._expire)

    def _expire(self) -> None:
        if self.deadline is not None:
            request_id, where = self.bindings.run_id, self.admission.where
            self.stop.set(
                self.deadline.error(
                    self.what, self.place, stage=self.stage, request_id=request_id, **where
                )
            )

    def launch(self, wake: Callable[[], None] | None = None) -> None:
        """Send a caller's run to the network; ``wake`` is called once it is answered.

        Raises what the network raises, and RequestBusyError; the run has ended then.
        """
        if get_sigint_handler() is default_int_handler and can_interrupt():
            self._launch_undisturbed(wake)
            return
        request = self.request
        before = None if request is None else request.become_busy(self)
        try:
            if request is not None and self.stop.error is not None:  # while it was tried inline
                request.on_answered_early(self)
            if wake is not None:
                self._answered = [wake]
            if self.deadline is not None and self._timer is None:
                self.start_timer()
            if self.admission.enter(self, may_refuse=True):
                try:
                    hop(self._begin)
                except Exception as error:
                    self._note_late(error)
            else:
                self._leave_queue_if_stopped()
            self._is_launched = True
        except BaseException as error:
            self.mark_retrieved()
            came_too_late = isinstance(error, ClosedError) and not self.has_arrived
            if not (came_too_late or isinstance(error, RequestBusyError)):
                self.admission.count_outcome(self, error)
            self.stop.set(error)  # an interrupt may come when the network has taken it already
            self.finish(error, was_launched=False)
            if self.slot is not None and not self._has_begun:
                self.finish(error)  # no other thread will give its slot back
            if request is not None and isinstance(error, OverloadedError):
                request.restore(self, before)
            lacking = as_shortage(error, f"starting {self.what}")
            if lacking is error:
                raise
            raise lacking from error
        if self._callback is not None:
            with suppress(MemoryError):  # then its end calls back
                self.allow_callback()

    def _launch_undisturbed(self, wake: Callable[[], None] | None) -> None:
        interrupt = held_interrupt()  # raised amid this, it would leave it half made
        try:
            with interrupt:
                self.launch(wake)
        except MemoryError:
            interrupt.__exit__()  # for that call there may have been none
            if not self._is_launched:
                raise
        if interrupt.has_come:
            with held_interrupt():
                self.cancel()
            raise KeyboardInterrupt

    def allow_callback(self) -> None:
        """Call its callback from now on, as it is launched; now if it has been stopped since."""
        self._is_launched = True
        if self.stop.error is not None and self.is_answered:
            self._tell_early()

    def start(self, *, may_refuse: bool = False) -> None:
        """Enter the network late, or inside a run of an outer one.

        Raises ClosedError, and OverloadedError where the network may refuse it.
        """
        if self.admission.enter(self, may_refuse=may_refuse):
            try:
                hop(self._begin)
            except BaseException as error:
                if not self._has_begun:
                    self._give_back(None)
                    raise
                self._note_late(error)
        else:
            self._leave_queue_if_stopped()

    def _note_late(self, error: BaseException) -> None:
        """Raise what has kept it from beginning, and interrupts; log the rest: it is reported."""
        if not (self._has_begun and isinstance(error, Exception)):
            raise error
        _log.error("%r: what followed the start of a run has failed", self, exc_info=error)

    def _leave_queue_if_stopped(self) -> None:
        self.stop.when_set(self._drop)
        if self._has_begun_late:  # on another thread, which found no listener to forget
            self.stop.forget(self._drop)

    def begin_late(self) -> None:
        """Begin in the slot that another run has left."""
        self._has_begun_late = True
        self.stop.forget(self._drop)
        self._begin()

    def _begin(self) -> None:
        """Go through the stages of its slot, unless it has been stopped meanwhile."""
        self._has_begun = True
        slot, bindings = self.slot, self.bindings
        if slot is None:  # an interrupt came, and it has ended
            return
        if self.downloads is not None and self.stop.error is None:
            try:
                self._download_inputs(self.downloads)
            except Exception as error:  # no memory for the call
                self._end(self._after, error)
            return
        slot.bindings, slot.stop = bindings, self.stop
        if type(slot).start is not Slot.start and self.stop.error is None:
            try:
                own_run = slot.start(self.stop, self._after, self._end, self.admission.recorder)
            except Exception as error:  # the backend's own; the run has not begun
                self._end(self._after, error)
                return
            with self.admission.lock:
                if self.slot is not None and own_run is not None:
                    self._own_run = own_run
            if own_run is not None:
                return
        self._stages = slot.stages
        self._mark = bindings.run_id, bindings.ticket[1], bindings.arrived_ns
        try:
            self._step(self._after, None)
        except BaseException as error:  # no memory for the call: nothing has been started
            if self.slot is None:
                raise
            stop_if_interrupted(self.stop, error)
            self._end(self._after, error)

    def hop_failed(self, error: BaseException) -> None:
        """End if it has a slot: there was no memory for a call, and nothing works for it.

        After an interrupt that is known only of a run that has not begun.
        """
        if self._is_dropped and not (self.is_inside or self.is_ending):
            self.finish(self.stop.error)
            return
        if self.slot is None and self._has_begun and self.is_inside:
            self.admission.leave(self)
            self._hand_on(NOW, self.stop.error or error)
            return
        has_lost = isinstance(error, Exception) or not self._has_begun
        if self.slot is None or self.is_ending or not has_lost:
            return
        self._has_begun = True
        if self.is_inside and self._then is None:  # which has been called
            self._give_back(None)
        else:
            self._end(self._after, self.stop.error or error)

    def _download_inputs(self, executor: TaskExecutor) -> None:
        """Have the inputs downloaded that other devices have kept, and begin then."""
        with late_imports:
            from .input_download import download_stage

        self.downloads = None
        stage = download_stage(executor, self.bindings, self.stop, self.admission.recorder)
        self._stages = (stage,)
        try:
            executor.run(stage.function, self._after, self._downloaded)
        except BaseException as refused:
            stop_if_interrupted(self.stop, refused)
            self._end(self._after, refused)

    def _downloaded(self, ready: Ready, error: BaseException | None) -> None:
        self._stages = ()
        if error is None:
            hand_over(self._begin)
        else:
            self._end(ready, error)

    def _step(self, ready: Ready, error: BaseException | None) -> None:
        error = error or self.stop.error
        if error is not None or self._index == len(self._stages):
            self._end(ready, error)  # the token is handed on unwaited for, after an error too
            return
        self._queued_ns = perf_counter_ns()
        try:
            self._stages[self._index].executor.run(self._call, ready, self._advance)
        except BaseException as refused:  # a closed executor, on whichever thread
            stop_if_interrupted(self.stop, refused)
            self._end(ready, refused)

    def _call(self, lane: Lane) -> Ready:
        """Run the stages that follow each other on one executor, on its lane."""
        stages, stop, record = self._stages, self.stop, self.admission.recorder.record
        while True:
            if stop.error is not None:  # the queue has been waited through: ask again
                raise stop.error
            stage = stages[self._index]
            started_ns = perf_counter_ns()
            ready: Ready | None = None
            try:
                ready = stage.function(lane)
            finally:
                ended_ns = perf_counter_ns()
                if type(ready) is not Again:
                    record(self._mark, stage, lane, self._queued_ns, started_ns, ended_ns)
            if type(ready) is Again:
                return ready.token
            self.service_ns += ended_ns - started_ns
            self._index += 1
            if (
                self._index == len(stages)
                or stages[self._index].executor is not stage.executor
                or (ready is not NOW and (not ready.is_ready or ready.error is not None))
            ):
                return ready
            self._queued_ns = ended_ns

    def _advance(self, ready: Ready, error: BaseException | None) -> None:
        if ready is NOW and (error is not None or self._index == len(self._stages)):
            if self._then is None:
                self.finish(error or self.stop.error)
            else:
                self._end(NOW, error or self.stop.error)
        else:
            hand_over(self._step, ready, error)
