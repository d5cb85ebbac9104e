"""RequestRun: one run of a request, and who is told when it is answered and when it has ended.

Theory of operation. The outcome is settled once, by whatever comes first: the end of the last
stage, or the run's Stop. A run that is stopped is answered at once and ends later; any other is
answered when it ends. Nobody is told before the request's state says the same, so whoever was
answered may start the request again.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import DeadlineExceededError, RequestCancelledError
from ..executors import NOW, Ready, TimerHandle, hop
from .admitted_run import AdmittedRun
from .bindings import Bindings
from .pipeline import Stop, nobody

if TYPE_CHECKING:
    from .executable_network import ExecutableNetwork
    from .infer_request import InferRequest

__all__ = ["Callback", "RequestRun", "called_back"]

Callback = Callable[["InferRequest", BaseException | None], None]
"""Called when a run of ``start_async`` has ended, with the error or None."""

_log = logging.getLogger("aioinfer")


class _CalledBack(threading.local):
    """The run whose callback this thread is in."""

    run: RequestRun | None = None


called_back = _CalledBack()


class RequestRun(AdmittedRun):
    """One run of a request; made and started by it. Thread-safe."""

    # What most runs leave as it is, so that making one is cheap.
    userdata: Any = None
    error: BaseException | None = None
    is_answered = False
    """The caller may have the outcome now."""
    has_ended = False
    """Nothing works for it any more, and its callback is over."""
    ended_ns = 0
    _callback: Callback | None = None
    _context: contextvars.Context | None = None
    _deadline: TimerHandle | None = None
    _traceback: TracebackType | None = None
    _is_settled = False
    _is_ending = False
    _is_sent = False
    _is_retrieved = False
    _unretrieved: _Unretrieved | None = None

    def __init__(
        self,
        request: InferRequest,
        network: ExecutableNetwork,
        bindings: Bindings,
        callback: Callback | None,
    ) -> None:
        super().__init__(network.admission, bindings, Stop(self._answer), NOW, nobody)
        self.started_ns = bindings.arrived_ns
        self.request, self._network = request, network
        self._lock = threading.Lock()
        self._answered: list[Callable[[], None]] = []
        self._ended: list[Callable[[], None]] = []
        if callback is not None:
            self._callback = callback
            self._context = contextvars.copy_context()
            self._is_retrieved = True

    def outcome(self) -> dict[str, Any]:
        """Return the results or raise the error."""
        self.disregard()
        if self.error is not None:
            # Each raise adds to the traceback, so it starts from what it was at first.
            raise self.error.with_traceback(self._traceback)
        return self.bindings.results

    def disregard(self) -> None:
        """Let its error, if it has or gets one, go without a word: nobody will ask for it."""
        self._is_retrieved = True
        if self._unretrieved is not None:
            self._unretrieved.error = None

    def when_answered(self, call: Callable[[], None]) -> None:
        """Call once it is answered; at once on this thread if it is."""
        with self._lock:
            if not self.is_answered:
                self._answered.append(call)
                return
        call()

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call once it has ended; at once on this thread if it has."""
        with self._lock:
            if not self.has_ended:
                self._ended.append(call)
                return
        call()

    def wait_until_ended(self, timeout_s: float | None) -> bool:
        """Block this thread until it has ended; False on timeout."""
        ended = threading.Event()
        call = ended.set
        self.when_ended(call)
        try:
            return ended.wait(None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                if call in self._ended:
                    self._ended.remove(call)

    def send(self, deadline_at_s: float | None, wake: Callable[[], None] | None = None) -> None:
        """Send it to the network, with a deadline by the network's clock; called once.

        ``wake`` is called once it is answered. Raises what the network raises; the run has ended
        then.
        """
        try:
            if wake is not None:
                self._answered.append(wake)
            if deadline_at_s is not None:
                self.set_deadline(deadline_at_s)
            self._is_sent = True
            self.admission.admit(self, may_refuse=True)
        except BaseException as error:
            self.disregard()
            self.stop.set(error)  # an interrupt may come when the network has taken it already
            if self._claim_end():
                self._become_idle()
                self.tell()
            raise

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return super().place if self._is_sent else "running inline"

    def end_inline(self, error: BaseException | None) -> BaseException | None:
        """Settle it after its last stage, on the thread that started it, and return the outcome.

        Its slot is still its own; ``tell`` comes when that is free.
        """
        with self._lock:
            self._is_ending = True
            if not self._is_settled:
                self._is_settled = True
                if error is not None:
                    self._set_error(error)
        self._become_idle()
        return self.error

    def cancel(self) -> None:
        """Stop it, unless its outcome is settled; the caller is answered at once."""
        if not self._is_settled:
            self.stop.set(RequestCancelledError(f"{self._what} was cancelled"))

    @property
    def _what(self) -> str:
        network = self._network
        return f"request {self.bindings.run_id} of {network.name!r} on {network.device}"

    def set_deadline(self, deadline_at_s: float) -> None:
        """Stop it at this time of the network's clock, unless it has ended by then."""

        def expire() -> None:
            self.stop.set(DeadlineExceededError(f"{self._what} did not finish before its deadline"))

        clock = self._network.clock
        if deadline_at_s <= clock.now_s():
            expire()
        else:
            self._deadline = clock.call_at(deadline_at_s, expire)

    def drop_deadline(self) -> None:
        """Take the deadline back, of a run that was not carried to its end."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _answer(self) -> None:
        """Answer the caller now; the device may still be busy."""
        if self._settle(self.stop.error):
            self.request.on_answered_early(self)
            with self._lock:
                self.is_answered = True
                calls, self._answered = self._answered, []
            for call in calls:
                call()

    def dropped(self) -> None:
        hop(self._finish, self.stop.error)

    def ended(self, ready: Ready, error: BaseException | None) -> None:
        """No host code of the run is left; it has ended when the last token has fired."""
        if ready is NOW:
            if error is None and not self._is_ending:
                self.note_time()
            self._finish(error)
        else:
            ready.when_ready(lambda late: self._finish(error or late))

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            is_first, self._is_ending = not self._is_ending, True
            if is_first and not self._is_settled:
                self._is_settled = True
                if error is not None:
                    self._set_error(error)
        if not is_first:  # an interrupt came while it was sent, and its caller knows
            self.admission.free(self)
            return
        self.admission.vacate(self)
        self._become_idle()
        self.admission.settle(self, self.error)
        if self._callback is None:
            self.tell()
            self.admission.leave(self)
            return
        try:
            self._network.callback_executor.run(self._call_back, NOW, self._called_back)
        except BaseException as refused:
            self._called_back(NOW, refused)

    def _claim_end(self) -> bool:
        with self._lock:
            is_first, self._is_ending = not self._is_ending, True
        return is_first

    def _become_idle(self) -> None:
        self.ended_ns = perf_counter_ns()
        if self._deadline is not None:
            self._deadline.cancel()
        # What belongs to the caller is let go of now, and not when the cycle of run and stop is
        # found by the garbage collector.
        self.stop.forget_all()
        self.request.on_ended(self)
        self.bindings.inputs, self.bindings.bound = {}, {}

    def _call_back(self, _lane: Any) -> Ready:
        callback, context = self._callback, self._context
        assert callback is not None
        assert context is not None
        outer, called_back.run = called_back.run, self
        try:
            context.run(callback, self.request, self.error)
        finally:
            called_back.run = outer
        return NOW

    def _called_back(self, _ready: Ready, error: BaseException | None) -> None:
        if error is not None:
            self._is_retrieved = False
            self._set_error(error)
        self.tell()
        self.admission.leave(self)

    def tell(self) -> None:
        """Let everybody know who waits for its answer or its end."""
        with self._lock:
            self.is_answered = self.has_ended = True
            calls = self._answered + self._ended
            if calls:
                self._answered, self._ended = [], []
        for call in calls:
            call()

    def _settle(self, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_settled:
                return False
            self._is_settled = True
            self._set_error(error)
            return True

    def _set_error(self, error: BaseException | None) -> None:
        self.error = error
        if error is None:
            return
        self._traceback = error.__traceback__
        if not (self._is_retrieved or isinstance(error, RequestCancelledError)):
            self._unretrieved = _Unretrieved(self._what, error)


class _Unretrieved:
    """Goes with its run, and then logs the error that nobody has asked for."""

    __slots__ = ("error", "what")

    def __init__(self, what: str, error: BaseException) -> None:
        self.what = what
        self.error: BaseException | None = error

    def __del__(self) -> None:
        if self.error is not None:
            _log.error("an error of %s was never retrieved: %r", self.what, self.error)
