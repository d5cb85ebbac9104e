"""The executor without a thread: the function runs where the token fires."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .base import NOW, Lane, Ready, TaskExecutor, Then, refuse_own_thread, run_here
from .parking import Parking


class ImmediateExecutor(TaskExecutor):
    """Runs the function inside ``run`` if its token has fired, else on the thread that fires it.

    For functions of a few microseconds that cannot block. It may call several at once, each on its
    caller's thread, so its lane's ``local`` belongs to no one thread.
    """

    def __init__(self, name: str = "immediate") -> None:
        super().__init__(name)
        self._lane = Lane(name)
        self._parking = Parking(f"executor {name!r}")

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        if not self._parking.is_open:
            raise self._parking.refusal()
        if after is NOW:
            run_here(function, self._lane, then)
        else:
            self._parking.park(after, partial(run_here, function, self._lane, then), then)

    def borrow_lane(self) -> Lane | None:
        """Lend its lane to any thread while it is open: it calls on the caller's thread anyway."""
        return self._lane if self._parking.is_open else None

    def close(self, *, drain: bool = True) -> None:
        """Refuse new work, and wait until every accepted function has been started by its token.

        Without drain, those whose token has not fired end with ClosedError instead.
        """
        refuse_own_thread(f"closing {self!r}")
        if self._parking.is_in_its_process:
            self._parking.close(drain=drain)

    def __repr__(self) -> str:
        state = "closed" if self._parking.is_closed else f"{self._parking.count} held"
        return f"<{type(self).__name__} {self.name!r} {state}>"
