"""An executor that does nothing until the test says so."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..errors import AioInferError
from .base import NOW, Lane, Ready, TaskExecutor, Then, run_here
from .parking import Parking


class ManualExecutor(TaskExecutor):
    """Holds what it is given; ``release`` runs the next on the calling thread and settles it.

    What waits for a token that has not fired is held, and joins the waiting ones, at their end,
    once it fires. Thread-safe; ``repr`` is meant to be asserted on.

    ```python
    from aioinfer.testing import NOW, ManualExecutor

    ended = []
    executor = ManualExecutor("upload")
    executor.run(lambda lane: NOW, NOW, lambda ready, error: ended.append(error))
    assert not ended  # until the test says so
    executor.release()
    assert ended == [None]
    ```
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lane = Lane(name)
        self._parking = Parking(f"executor {name!r}")
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[Lane], Ready], Then]] = deque()

    @property
    def waiting_count(self) -> int:
        """How many could be released now."""
        return len(self._waiting)

    @property
    def held_count(self) -> int:
        """How many wait for a token that has not fired."""
        return self._parking.count

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        if not self._parking.is_open:
            raise self._parking.refusal()

        def wait() -> None:
            with self._lock:
                self._waiting.append((function, then))

        if after is NOW:
            wait()
        else:
            self._parking.park(after, wait, then)

    def release(self, count: int = 1) -> None:
        """Run the next ``count``, oldest first. Raises AioInferError where fewer are waiting."""
        for _ in range(count):
            function, then = self._next("release")
            run_here(function, self.lane, then)

    def fail(self, error: BaseException) -> None:
        """End the next one with this error, without calling its function."""
        _, then = self._next("fail")
        then(NOW, error)

    def close(self, *, drain: bool = True) -> None:
        """Refuse new work and run what is waiting, on this thread; twice is fine.

        What is held ends with ClosedError, because the token might be fired by this very thread;
        without drain, so does what is waiting.
        """
        self._parking.close(drain=False)
        while self._waiting:
            if drain:
                self.release()
            else:
                self.fail(self._parking.refusal())

    def __repr__(self) -> str:
        held = f", {self.held_count} held by a token" if self.held_count else ""
        return f"<{type(self).__name__} {self.name!r} {self.waiting_count} waiting{held}>"

    def _next(self, verb: str) -> tuple[Callable[[Lane], Ready], Then]:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
        raise AioInferError(f"{self!r} has nothing to {verb}; run something, or fire its token")
