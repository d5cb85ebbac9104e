"""RunOutcome: the results of a run or its error, and what is called once its caller has them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, cast

from ...errors import AioInferError, ClosedError, RequestCancelledError, RequestStateError
from ...executors import as_shortage
from .bindings import NO_ANSWER, Bindings, Deferred, Results
from .callback import CalledRun, PendingCallback, RunCallback
from .error_frames import parting_copy
from .run_admission import RunAdmission
from .run_profile import RunProfile
from .stage import Stop
from .waiting_calls import take_call

__all__ = ["RunOutcome"]

_log = logging.getLogger("aioinfer")


class RunOutcome:
    """What a run comes to, for its caller. Thread-safe.

    Run, which extends it, settles it and says when it is answered and when it has ended.
    """

    admission: RunAdmission[Any]
    bindings: Bindings
    stop: Stop
    # What most runs leave as it is, so that making one is cheap.
    error: BaseException | None = None
    is_answered = False
    """The caller may have the outcome now."""
    has_ended = False
    """Nothing works for it any more, and its callback is over."""
    is_asked_for = False
    """Its error has been raised to a caller that asked for the results."""
    callback_loop: Any = None
    """The event loop or trio token that its callback is called on; None once it has ended."""
    _callback: PendingCallback | None = None
    _unended: list[bool] | None = None
    """What is left of device and callback; the thread that takes out the last of both ends the run.
    None without a callback."""
    _traceback: TracebackType | None = None
    _answered: Sequence[Callable[[], None]] = ()
    _ended: Sequence[Callable[[], None]] = ()
    _is_retrieved = False
    _unretrieved: _UnretrievedError | None = None

    @property
    def what(self) -> str:
        """Its name, for messages."""
        return f"request {self.bindings.run_id} of {self.admission.network}"

    @property
    def profile(self) -> RunProfile | None:
        """The times of its nodes; None unless PERF_COUNT is on."""
        return self.bindings.profile

    def outcome(self) -> Results:
        """Return the results or raise the error."""
        if self.error is not None:
            self.mark_retrieved()
            self.is_asked_for = True
            # Each raise adds to the traceback, so it starts from what it was at first.
            raise self._part_with_error().with_traceback(self._traceback)
        bindings = self.bindings
        answer = bindings.answer
        if answer is NO_ANSWER:
            return bindings.results
        if type(answer) is Deferred:
            self._call_deferred(answer)
            return self.outcome()
        return answer

    def _part_with_error(self) -> BaseException:
        """Return the error, and keep a copy: its traceback is to hold callers, who hold this run.

        A callback gets the one that it was called with, each time.
        """
        error = self.error
        assert error is not None
        if self._unended is None or self.has_ended:
            self.error = parting_copy(error)
            if self.stop.error is error:
                self.stop.error = self.error
        return error

    def _call_deferred(self, deferred: Deferred) -> None:
        """Make the answer, or the error, of the results, unless another thread has done it."""
        bindings, thread_id = self.bindings, threading.get_ident()
        if deferred.thread_id == thread_id:
            raise RequestStateError(
                f"the postprocess function of {self.what} asks for the results that it is to "
                f"make; use the outputs that it is called with",
                request_id=bindings.run_id,
                state="busy",
                stage="postprocess",
                **self.admission.where,
            )
        with deferred.lock:
            if self.error is None and bindings.answer is deferred:
                deferred.thread_id = thread_id
                try:
                    bindings.answer = deferred.function(bindings.results)
                except Exception as error:
                    self._set_error(error)
                finally:
                    deferred.thread_id = 0

    def make_answer(self) -> None:
        """Call the postprocess function that is still to be called; its error becomes the run's."""
        answer = self.bindings.answer
        if type(answer) is Deferred and self.error is None:  # an error of its own goes first
            try:
                self._call_deferred(answer)
            except BaseException as error:
                self._set_error(error)

    def mark_retrieved(self) -> None:
        """Log nothing of its error, if it has or gets one: no caller will ask for it."""
        self._is_retrieved = True
        if self._unretrieved is not None:
            self._unretrieved.error = None

    def _set_error(self, error: BaseException | None) -> None:
        if error is None:
            self.error = error
            return
        self.error = error = as_shortage(error, f"running {self.what}")
        if isinstance(error, AioInferError):
            error.within(**self.admission.where)
        self._traceback = error.__traceback__
        if not (self._is_retrieved or isinstance(error, RequestCancelledError | ClosedError)):
            self._unretrieved = _UnretrievedError(self.what, error)

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call once it is answered; at once on this thread if it is."""
        self.__dict__.setdefault("_answered", []).append(call)
        if self.is_answered and take_call(self._answered, call):
            call()

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call once it has ended; at once on this thread if it has."""
        self.__dict__.setdefault("_ended", []).append(call)
        if self.has_ended and take_call(self._ended, call):
            call()

    def forget_ended(self, call: Callable[[], None]) -> None:
        """Take back what was given to ``when_ended``, unless it is being called."""
        take_call(self._ended, call)

    def wait_until_ended(self, timeout_s: float | None) -> bool:
        """Block this thread until it has ended; False on timeout."""
        ended = threading.Lock()  # an Event breaks if an interrupt comes amid its wait
        ended.acquire()
        call = ended.release
        self.when_ended(call)
        try:
            return ended.acquire(
                timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)
            )
        finally:
            take_call(self._ended, call)

    def call_back(self, callback: RunCallback, loop: Any = None) -> None:
        """Have this called once it is answered, in the context of the calling thread.

        ``loop``: an event loop or trio token to call it on; None is the network's callback thread.
        """
        self._callback, self.callback_loop = PendingCallback(callback, loop), loop
        self._unended = [True, False]
        self._is_retrieved = True

    def _send_callback(self) -> None:
        """Have the callback called where it belongs, by the thread that takes it first."""
        callback: PendingCallback | None = self.__dict__.pop("_callback", None)
        if callback is not None:
            try:
                callback.send(cast("CalledRun", self))
            except BaseException:  # no memory: it has not been called
                self._callback = callback
                raise

    def _take_callback(self) -> PendingCallback | None:
        """Take the callback, which one thread gets."""
        taken: PendingCallback | None = self.__dict__.pop("_callback", None)
        return taken


class _UnretrievedError:
    """Goes with its run, and then logs the error, unless that was set to None meanwhile."""

    __slots__ = ("error", "what")

    def __init__(self, what: str, error: BaseException) -> None:
        self.what = what
        self.error: BaseException | None = error

    def __del__(self) -> None:
        if self.error is not None:
            _log.error("an error of %s was never retrieved: %r", self.what, self.error)
