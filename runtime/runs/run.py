"""Run: one run of a network, from the caller's inputs to its outcome (``run_outcome.py``).

Theory of operation. A run enters the network's admission, goes through the stages of the slot that
it gets, and gives the slot back when its last token has fired. The thread that finishes a stage
hands the next one to its executor together with the :class:`Ready` token; no event loop is
involved. Stages that follow each other on one executor are one hop. The run's Stop, which it shares
with the runs inside it, is looked at before every stage, and inside of stages by their devices:
before the next of what they do.

A run of a caller has an outcome, settled once by whatever comes first: the end of the last stage,
or the Stop. One that is stopped is answered at once and ends later; any other is answered when it
ends. The request's state changes before the answer is given, so a caller that was answered may
start the request again. A callback is how its caller is answered: it comes with the answer, and the
run has ended when both the device and the callback are done. A run that a callback starts while the
device is busy with the one before is parked until that has ended. A run of an outer network has
``then`` instead, which is called exactly once, when none of its host code is left; device work may
still be under way, and the token says until when.
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
    TimerHandle,
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
from ..tracing.recorder import RunMark
from .bindings import NO_TENSORS, Bindings
from .deadline import Deadline
from .error_frames import empty_frames, empty_own_frames
from .input_download import download_stage
from .run_admission import RunAdmission
from .run_outcome import RunOutcome
from .slot import OwnRun, Slot
from .stage import Again, Stage, Stop, new_stop_word, stop_if_interrupted
from .waiting_calls import call_all

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

    def become_busy(self, run: Run) -> Run | None:
        """Make this the last run, and return the one before; raises RequestBusyError."""

    def restore(self, run: Run, before: Run | None) -> None:
        """Have what the last run has left, as if this one had never been asked for."""

    def on_answered_early(self, run: Run) -> None:
        """Note that the caller was answered and the device is not done."""

    def on_ended(self, run: Run) -> Callable[[], None] | None:
        """Become idle, with the results in the handles; or busy with what the call launches."""


class Run(RunOutcome):
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
    has_arrived = False
    """Written by the admission: it has been counted among those that came."""
    is_counted = False
    """Its outcome has been counted, by the admission."""
    slot: Slot | None = None
    """Where it is; None before and after. Written by the admission."""
    waits_since_ns = 0
    """When it began to wait for a slot; 0: it never did. Written by the admission."""
    service_ns = 0
    """How long its stages have run on their executors, together."""
    ended_ns = 0
    is_inline = False
    """True on its caller's thread; for messages."""
    is_inside = False
    """It is that of an outer network's run, whose ``then`` is called at its end."""
    is_ending = False
    """Its end has come to the admission, which writes this and the next."""
    is_disowned = False
    """Its launch has failed, of which its caller knows; it ends unnoticed where it is."""
    _stages: Sequence[Stage] = ()
    _index = 0
    _queued_ns = 0
    _mark: RunMark = (0, 0, 0)
    _own_run: OwnRun | None = None
    downloads: TaskExecutor | None = None
    """Where it downloads inputs that other devices have kept, which blocks; None: it has none."""
    _is_launched = False
    """Its launch has not failed, and will not: its callback may be called."""
    is_parked = False
    """It waits for the request's run before to end, and nothing works for it."""
    _timer: TimerHandle | None = None
    _after: Ready = NOW
    _then: Then | None = None
    _has_begun = False
    _has_begun_late = False
    _has_freed_request = False
    _is_dropped = False
    """It was stopped while it waited for a slot."""
    _is_settled = False

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
        if self.is_inside and self._then is None:  # of which it has been told
            self._give_back(None)
        else:
            self._end(self._after, self.stop.error or error)

    def _download_inputs(self, executor: TaskExecutor) -> None:
        """Have the inputs downloaded that other devices have kept, and begin then."""
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

    def _end(self, ready: Ready, error: BaseException | None) -> None:
        """No host code of the run is left; it has ended when the last token has fired."""
        if self._then is None:
            if ready is NOW:
                self.finish(error)
            else:
                ready.when_ready(lambda late: self.finish(error or late, is_late=True))
            return
        self.bindings.awaited = None
        try:
            if ready is not NOW:
                ready.when_ready(self._give_back)
            else:
                if error is None:
                    self._note_time()
                self._give_back(None)
        finally:  # as _hand_on, without a call more for each run
            then, self._then = self._then, None
            if then is not None:
                try:
                    hand_over(then, ready, error)
                except MemoryError:
                    self._then = then
                    raise

    def _hand_on(self, ready: Ready, error: BaseException | None) -> None:
        """Tell the outer network of the end, once; an ended run keeps nothing alive."""
        then, self._then = self._then, None
        if then is not None:
            try:
                hand_over(then, ready, error)
            except MemoryError:  # for the call itself: `then` has not been called
                self._then = then
                raise

    def end_inside(self, error: BaseException | None) -> None:
        """End a run of an outer network that a thread has carried through its stages."""
        self.bindings.awaited = None
        self._give_back(None)
        self._hand_on(NOW, error)

    def _note_time(self) -> None:
        """Tell how long the stages took, for the choice which runs stay on their callers' threads.

        Only of runs that have ended well, without anything left on a device.
        """
        gate, slot = self.admission.gate, self.slot
        if gate is not None and slot is not None and slot.may_run_inline:
            gate.time_of(self.bindings.inputs).note(self.service_ns)

    def _give_back(self, _late: BaseException | None) -> None:
        following = self.admission.finish(self, None, counts=False)
        self._own_run = None  # it and this run know each other
        if following is not None:
            try:
                hand_over(following.begin_late)
            except MemoryError:  # for the call itself: it has not begun
                hand_over(following.begin_late)
        self.admission.leave(self)

    def _drop(self) -> None:
        """Leave the queue, if it still waits in it; a listener of its Stop."""
        if not (self._is_dropped or self.admission.drop(self)):
            return
        self._is_dropped = True
        if not self.is_inside:
            hand_over(self.finish, self.stop.error)
            return
        self.admission.leave(self)
        self._hand_on(self._after, self.stop.error)

    def _answer(self) -> None:
        """Answer the caller now; the device may still be busy. The listener of its Stop."""
        self._settle_stopped()
        assert self.error is not None
        if self.has_arrived or (self.is_parked and not isinstance(self.error, ClosedError)):
            self.admission.count_outcome(self, self.error)
        if self.request is not None:
            self.request.on_answered_early(self)
        self.is_answered = True
        call_all(self._answered)
        if self._is_launched:
            self._tell_early()

    def _tell_early(self) -> None:
        """Call back now, though the device may still be busy, unless the end has come to it."""
        self.ended_ns = self.ended_ns or perf_counter_ns()
        self._send_callback()

    def _settle_stopped(self) -> None:
        """Make the error of the Stop the outcome; by the threads that stop and that end it."""
        self._is_settled = True
        with self.admission.lock:
            if self.error is None:
                self._set_error(self.stop.error)

    def finish(
        self, error: BaseException | None, *, is_late: bool = False, was_launched: bool = True
    ) -> None:
        """End a caller's run, whose last token has fired: free its slot, settle, and tell.

        Its callback comes first, on the network's thread for them. ``was_launched`` is false where
        the network may not have it: it has no callback then, and a slot that it has is freed later.
        """
        admission, following, launch_next = self.admission, None, None
        try:
            if not was_launched and not admission.disown(self):
                return
            states = self.bindings.states
            if states is not None and error is None:
                error = states.take(self.bindings.results)
            try:
                self.stop.listeners.remove(self._answer)
            except ValueError:  # a thread that stops it has come first
                self._settle_stopped()
            else:
                self._is_settled = True
                if error is not None:
                    self._set_error(error)
            if states is not None and was_launched:
                states.settle(has_succeeded=self.error is None)
            elif states is not None and self.has_arrived:
                states.part()
            self.ended_ns = perf_counter_ns()
            if was_launched:
                if (
                    error is None
                    and not is_late
                    and not self.is_inline
                    and admission.gate is not None
                ):
                    self._note_time()
                following = admission.finish(self, self.error)
                if self.bindings.profile:
                    admission.recorder.keep_nodes(self.bindings.mark(), self.bindings.profile)
                if self.is_disowned:
                    if following is not None:
                        hand_over(following.begin_late)
                        following = None
                    admission.leave(self)
                    return
            if self.error is not None:
                self.bindings.results = {}  # no caller gets it
            elif admission.kept_outputs:
                self.bindings.hand_out(admission.kept_outputs)
            # What belongs to the caller is dropped now, and not when the garbage collector comes.
            if self._timer is not None:
                self._timer.cancel()
            if self._own_run is not None:
                self._own_run = None
            if self.error is not None:
                empty_own_frames(self.error)
            bindings, request = self.bindings, self.request
            if request is not None and not self.is_parked:
                launch_next = request.on_ended(self)
            self._has_freed_request = True
            bindings.inputs = bindings.bound = NO_TENSORS
            bindings.awaited = None
            if following is not None:
                hand_over(following.begin_late)
                following = None  # whatever fails from here on, it is on its way
            if launch_next is not None:
                hop(launch_next)
                launch_next = None
            if self._unended is None or not was_launched:
                if self._callback is not None:
                    self._take_callback()
                self._tell(leaves=was_launched)
                return
            self._send_callback()
            if self.callback_loop is not None:  # which a close may be holding up
                admission.leave(self)
            self._end_part()
        except BaseException as raised:  # no memory for one of the calls, most likely
            self.end_again(raised, following, launch_next, was_launched=was_launched)

    def end_again(
        self,
        error: BaseException,
        following: Run | None = None,
        launch_next: Callable[[], None] | None = None,
        *,
        was_launched: bool = True,
    ) -> None:
        """Go on with an end that an error has cut off; what was done stays as it is.

        The caller gets the error, unless it has an outcome. ``following`` has got the slot, and
        ``launch_next`` is a run that waits for the request, if the end has come so far.
        """
        has_outcome = self._has_freed_request or (
            self.bindings.states is not None and self.is_ending
        )
        if not has_outcome:
            self._is_settled = True
            if self.error is None:
                self._set_error(error)
            self.bindings.results = {}
        self.ended_ns = self.ended_ns or perf_counter_ns()
        if was_launched and self.slot is not None:
            following = self.admission.finish(self, self.error, counts=not self.is_ending)
        if not self._has_freed_request and self.request is not None and not self.is_parked:
            launch_next = self.request.on_ended(self)
            self._has_freed_request = True
        if following is not None:
            hand_over(following.begin_late)
        if launch_next is not None:
            hop(launch_next)
        if was_launched and self._unended is not None:
            self._send_callback()
            self._end_part()
        else:
            self._tell(leaves=was_launched)

    def take_back(self, before: Run | None) -> None:
        """Give the slot back of a run that could not be carried to its end, as if it never was.

        ``before`` is the request's run before it.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_inline = False
        self._give_back(None)
        if self.request is not None:
            self.request.restore(self, before)

    def called_back(self, _ready: Ready, error: BaseException | None) -> None:
        """Note that its callback is over; ``error`` is why it has failed.

        Once, and again if it has raised.
        """
        if error is not None:
            _log.error("the callback of %s has failed", self.what, exc_info=error)
            empty_frames(error)
            self._set_error(error)
        self._end_part()

    def _end_part(self) -> None:
        """Say that device or callback is done; if both are, it has ended."""
        unended = self._unended
        assert unended is not None
        if not unended or unended.pop():  # none is left where a call of _tell has failed
            self._tell()

    def _tell(self, *, leaves: bool = True) -> None:
        """Call what waits for its answer or its end; then a close need not wait for it."""
        self.is_answered = self.has_ended = True
        if self._unended is not None and self.error is not None:
            self.error.__traceback__ = self._traceback  # its callback may have raised it
        if self._answered:
            call_all(self._answered)
        if self._ended:
            call_all(self._ended)
        if self.request is not None:
            self.request = None  # which holds this run
        if self.callback_loop is not None:
            self.callback_loop = None
        if leaves:
            admission = self.admission
            admission.runs.discard(self)
            if admission.is_waited_for:
                admission.tell_closer()
