"""What a run calls once its caller is to be told: which function, in which context, and where."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["PendingCallback", "RunCallback", "Told", "told_run"]

RunCallback = Callable[[Any, BaseException | None], Any]
"""Called when a run is answered or has ended, with its request and the error or None."""


class ToldRun(Protocol):
    """What a callback is told of a run."""

    request: Any
    error: BaseException | None


@dataclass(slots=True)
class Told:
    """The run whose callback is under way; None once it is over."""

    run: Any = None


_told: contextvars.ContextVar[Told | None] = contextvars.ContextVar("aioinfer_told", default=None)


def told_run() -> Any:
    """Return the run whose callback this code is in, coroutines and tasks of it included."""
    told = _told.get()
    return None if told is None else told.run


@dataclass(slots=True)
class PendingCallback:
    """A callback that is still to be called, in the context of the thread that makes this.

    ``loop``: the event loop or trio token to call it on; None is the network's callback thread.
    """

    function: RunCallback
    loop: Any = None
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    told: Told = field(default_factory=Told)

    def call(self, run: ToldRun) -> Any:
        """Call it for a run, inside of its context."""
        self.told.run = run
        _told.set(self.told)
        return self.function(run.request, run.error)
