"""What runs are made of: stages, and the Stop that ends a run early with all runs inside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from ...executors import Lane, Ready, TaskExecutor
from ...executors.base import WhenReady

__all__ = ["NO_STOP", "Again", "Stage", "Stop", "new_stop_word", "stop_if_interrupted"]


_NO_LISTENERS: list[Callable[[], None]] = []

new_stop_word = bytearray(1).copy
"""Makes the word of a new Stop: half the price of ``bytearray(1)``, and every run pays it."""


class Stop:
    """What ends a run and all its sub-runs early: set once, by cancel, deadline or close.

    Setting it tells the listeners (the caller is answered, a queued run is dropped) and never calls
    a run's ``then``. Thread-safe without a lock, because each change is one step of the
    interpreter, and the thread that takes a listener out calls it.
    """

    error: BaseException | None = None
    """Why the run is to end; None while it may go on."""

    deadline_s: float = inf
    """When a deadline will set it, by the clock of the network that was asked."""

    listeners: list[Callable[[], None]] = _NO_LISTENERS
    """Called when it is set, by the thread that sets it; a list of its own from the first on."""

    word: bytearray | None = None
    """One byte, which becomes 1 when it is set: for native code, which looks at it without the
    interpreter's lock. A caller's run has one, and so have the runs inside it."""

    def set(self, error: BaseException) -> bool:
        """End the run with this error; False if an earlier one stands. Listeners run here.

        One without memory for what it does is called once more, as each may be.
        """
        if self.error is not None or self.__dict__.setdefault("error", error) is not error:
            return False
        if self.word is not None:
            self.word[0] = 1
        while self.listeners:
            try:
                listener = self.listeners.pop(0)
            except IndexError:  # the last one was forgotten just now
                break
            try:
                listener()
            except MemoryError:
                listener()
        return True

    def when_set(self, listener: Callable[[], None]) -> None:
        """Call once it is set; at once if it is. Listeners never raise and never block."""
        self.__dict__.setdefault("listeners", []).append(listener)
        if self.error is not None and self.forget(listener):
            listener()

    def forget(self, listener: Callable[[], None]) -> bool:
        """Take a listener back; False says that it is unknown, or was or is being called."""
        try:
            self.listeners.remove(listener)
        except ValueError:
            return False
        return True

    def raise_if_set(self) -> None:
        """Raise the error if it is set."""
        if self.error is not None:
            raise self.error


NO_STOP = Stop()
"""That of a slot that no run has."""


class Again(Ready):
    """What a stage function returns that has done nothing yet: call it again after ``token``.

    For what is missing now and then only, such as a plan: the function looks for it where it needs
    it, and nothing waits where it is there. Only stages in a line may return it.
    """

    __slots__ = ("token",)

    def __init__(self, token: Ready) -> None:
        self.token = token

    @property
    def is_ready(self) -> bool:
        return False

    @property
    def error(self) -> BaseException | None:
        return None

    def when_ready(self, call: WhenReady) -> None:
        self.token.when_ready(call)


@dataclass(eq=False, slots=True)
class Stage:
    """A named part of a request, bound to one executor."""

    name: str
    executor: TaskExecutor
    function: Callable[[Lane], Ready]
    """Gets the lane that it runs on; returns NOW, a device event, or Again."""
    part: object = ""
    """Which part of the network it runs, for spans: a function says so once the stage has run, of
    all else ``str`` does when spans are looked at."""

    place: tuple[str, str] = field(init=False)
    """The names of the stage and of its executor: for spans."""

    def __post_init__(self) -> None:
        self.place = self.name, self.executor.name


def stop_if_interrupted(stop: Stop, error: BaseException) -> None:
    """Make sure that a stage does nothing if its executor has it after all.

    An executor that raises has kept nothing, but an interrupt (Ctrl-C) may come in between.
    """
    if not isinstance(error, Exception):
        stop.set(error)
