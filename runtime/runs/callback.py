"""The callback of a run: which function, in which context, and where it is called."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from inspect import iscoroutine
from typing import Any, Protocol

from ...errors import AioInferError, Place, RequestStateError
from ...executors import NO_LANE, NOW, Lane, Ready, run_here
from ..loops.loop_call import LoopCall
from .bindings import Bindings

__all__ = ["CalledRun", "PendingCallback", "RunCallback", "Told", "told_run"]

_log = logging.getLogger("aioinfer")

RunCallback = Callable[[Any, BaseException | None], Any]
"""Called when a run is answered or has ended, with its request and the error or None."""


class HasPlace(Protocol):
    """What knows in which network and on which device an error was raised."""

    where: Place


class CalledRun(Protocol):
    """The run, as far as its callback is concerned."""

    request: Any
    error: BaseException | None
    bindings: Bindings

    @property
    def admission(self) -> HasPlace:
        """That of its network."""

    @property
    def what(self) -> str:
        """Its name, for messages."""

    def make_answer(self) -> None:
        """Make the results that the callback may ask for, or the error that it is called with."""

    def called_back(self, ready: Ready, error: BaseException | None) -> None:
        """Note that the callback is over; ``error`` is why it has failed. Again if it raises."""


class Told:
    """The run whose callback is under way; None once it is over."""

    __slots__ = ("run",)

    def __init__(self) -> None:
        self.run: Any = None


_told: contextvars.ContextVar[Told | None] = contextvars.ContextVar("aioinfer_told", default=None)


def told_run() -> Any:
    """Return the run whose callback this code is in, coroutines and tasks of it included."""
    told = _told.get()
    return None if told is None else told.run


class PendingCallback:
    """A callback that is still to be called, in the context of the thread that makes this.

    ``loop``: the event loop or trio token to call it on; None is the network's callback thread.
    """

    __slots__ = ("_error", "_run", "_was_called", "context", "function", "loop", "told")

    def __init__(self, function: RunCallback, loop: Any = None) -> None:
        self.function, self.loop = function, loop
        self.context, self.told = contextvars.copy_context(), Told()
        self._run: Any = None
        """Whose callback it is, once it is sent."""
        self._was_called = False
        self._error: BaseException | None = None
        """How it has failed."""

    def send(self, run: CalledRun) -> None:
        """Have it called where it belongs, and ``run.called_back`` afterwards, once. Any thread.

        If it raises, nothing was sent.
        """
        self._run = run
        if self.loop is not None:
            LoopCall(self.loop, self._call, self.context, self._over_on_loop).send()
            return
        try:
            run.request.callback_executor.run(self._call_on_thread, NOW, self._over)
        except RuntimeError:  # it has no thread yet, and Python 3.12 starts none at exit
            run_here(self._call_on_thread, NO_LANE, self._over)
        except AioInferError as refused:
            run.called_back(NOW, refused)

    def _call(self) -> Any:
        """Call it, inside of its context."""
        run = self._run
        run.make_answer()
        self.told.run = run
        _told.set(self.told)
        self._was_called = True
        return self.function(run.request, run.error)

    def _call_on_thread(self, _lane: Lane) -> Ready:
        run = self._run
        try:
            result = self.context.run(self._call)
        finally:
            self.told.run = None
        if iscoroutine(result):
            result.close()
            raise RequestStateError(
                f"the callback of {run.what} returned a coroutine, which no event loop was given "
                f"for; call set_callback(callback, loop)",
                request_id=run.bindings.run_id,
                stage="callback",
                **run.admission.where,
            )
        return NOW

    def _over(self, _ready: Ready, error: BaseException | None) -> None:
        if isinstance(error, MemoryError) and not self._was_called:  # none on the way to it
            error = None
            try:
                self._call_on_thread(NO_LANE)
            except BaseException as raised:
                error = raised
        self._error = error
        self._run.called_back(NOW, error)

    def hop_failed(self, error: BaseException) -> None:
        """Go through its end again, in which there was no memory for a call."""
        if self._was_called:
            self._run.called_back(NOW, self._error)
        else:
            self._over(NOW, error)

    def _over_on_loop(self, error: BaseException | None, lost: str) -> None:
        run, self.told.run = self._run, None
        if lost:
            _log.error("the callback of %s %s", run.what, lost)
        run.called_back(NOW, error)
