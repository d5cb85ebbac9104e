"""ReplicatedRun: a run that waits for one of several networks of a model, or has one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from ...executors import NOW, Ready, Then, hand_over, tell_owner
from ..runs.slot import Slot
from ..runs.stage import Stage, Stop
from ..tracing.recorder import SpanRecorder

__all__ = ["ReplicatedRun"]


class ReplicatedRun(Slot):
    """One run, from its arrival at the whole to its end there; a subclass says what is between.

    ``enter`` gives it a network or has it wait, and ``leave`` takes it out of those that wait if it
    was stopped; False: it has a network.
    """

    stages: Sequence[Stage] = ()

    def __init__(self, enter: Callable[[Any], None], leave: Callable[[Any], bool]) -> None:
        self._enter, self._leave = enter, leave
        self._after: Ready = NOW
        self._then: Then | None = None
        self._on_end: Then = self._ended
        self._error: BaseException | None = None
        """How its host code ended, while a token is waited for."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, for messages."""

    @property
    @abstractmethod
    def stage(self) -> str:
        """The name of what it is in, for messages."""

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> Self:
        self._after, self._then = after, then
        if after is NOW:
            self._enter(self)
        else:
            after.when_ready(self._began)
        return self

    def _began(self, error: BaseException | None) -> None:
        if error is None:
            self._enter(self)
        else:
            self._end(self._after, error)

    def drop(self) -> None:
        """Leave those that wait, if it was stopped and does; a listener of its Stop."""
        if self._leave(self):
            try:
                hand_over(self._end, NOW, self.stop.error)
            except MemoryError:  # for the call itself
                self._end(NOW, self.stop.error)

    def _ended(self, ready: Ready, error: BaseException | None) -> None:
        if ready is NOW:
            self._over(error)
        else:
            self._error = error
            ready.when_ready(self._fired)

    def _fired(self, late: BaseException | None) -> None:
        error, self._error = self._error, None
        self._over(error or late)

    @abstractmethod
    def _over(self, error: BaseException | None) -> None:
        """End, or go on elsewhere; nothing works for it any more."""

    def _end(self, ready: Ready, error: BaseException | None) -> None:
        then, self._then = self._then, None
        assert then is not None
        try:
            then(ready, error)
        except Exception as raised:  # no memory for the call
            tell_owner(then, (ready,), raised)
