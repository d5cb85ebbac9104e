"""RunEnd: how a run ends, whichever way it went: its slot is free, its caller has the outcome.

Theory of operation. A run of a caller has an outcome, settled once by whatever comes first: the end
of the last stage, or the Stop. One that is stopped is answered at once and ends later; any other is
answered when it ends. The request's state changes before the answer is given, so a caller that was
answered may start the request again. A callback is how its caller is answered: it comes with the
answer, and the run has ended when both the device and the callback are done. A run that a callback
starts while the device is busy with the one before is parked until that has ended. A run of an
outer network has ``then`` instead, which is called exactly once, when none of its host code is
left; device work may still be under way, and the token says until when.

What a failure cuts off is gone through again (:meth:`RunEnd.end_again`); what was done stays done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from ...errors import ClosedError
from ...executors import NOW, Ready, Then, TimerHandle, hand_over, hop
from .bindings import NO_TENSORS
from .error_frames import empty_frames, empty_own_frames
from .run_outcome import RunOutcome
from .slot import OwnRun, Slot
from .waiting_calls import call_all

__all__ = ["RunEnd"]

_log = logging.getLogger("aioinfer")


class RunEnd(RunOutcome):
    """The end of a run, of which Run is the beginning and the way. Thread-safe."""

    # What most runs leave as it is, so that making one is cheap.
    request: Any = None
    has_arrived = False
    """Written by the admission: it has been counted among those that came."""
    is_counted = False
    """Its outcome has been counted, by the admission."""
    slot: Slot | None = None
    """Where it is; None before and after. Written by the admission."""
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
    is_parked = False
    """It waits for the request's run before to end, and nothing works for it."""
    _own_run: OwnRun | None = None
    _is_launched = False
    """Its launch has not failed, and will not: its callback may be called."""
    _timer: TimerHandle | None = None
    _after: Ready = NOW
    _then: Then | None = None
    _has_freed_request = False
    _is_dropped = False
    """It was stopped while it waited for a slot."""
    _is_settled = False

    @property
    def duration_ns(self) -> int:
        """From when it was asked for to its end; 0 before that."""
        return self.ended_ns and self.ended_ns - self.bindings.arrived_ns

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
        following: Any = None,
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

    def take_back(self, before: Any) -> None:
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
