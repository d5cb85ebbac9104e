"""A bound on the time of one step of many tasks at once, by one timer for all of them."""

from __future__ import annotations

import asyncio
from types import TracebackType

__all__ = ["TimeLimit"]


class TimeLimit:
    """Ends what takes longer than ``limit_s``: ``with limit.stay(): await ...``.

    As ``asyncio.timeout`` it raises TimeoutError then. All stays are equally long, so they end in
    the order in which they began, and a timer is set for the first of them alone: that costs a
    request less than one of its own. Used on one event loop.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stays: dict[_Stay, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stay(self) -> _Stay:
        """Return a context for one step of the task that enters it."""
        return _Stay(self)

    def begin(self, stay: _Stay) -> None:
        loop = asyncio.get_running_loop()
        stay.ends_s = loop.time() + self._limit_s
        self._stays[stay] = None
        if self._timer is None:
            self._timer = loop.call_at(stay.ends_s, self._end_late)

    def end(self, stay: _Stay) -> None:
        self._stays.pop(stay, None)

    def _end_late(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while self._stays:
            stay = next(iter(self._stays))
            if stay.ends_s > now_s:
                self._timer = loop.call_at(stay.ends_s, self._end_late)
                return
            del self._stays[stay]
            stay.end_late()


class _Stay:
    """One step of one task."""

    __slots__ = ("_cancelled_before", "_is_late", "_limit", "_task", "ends_s")

    def __init__(self, limit: TimeLimit) -> None:
        self._limit, self._is_late, self.ends_s = limit, False, 0.0

    def end_late(self) -> None:
        self._is_late = True
        self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelled_before = task, task.cancelling()
        self._limit.begin(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limit.end(self)
        if self._is_late:
            is_own = self._task.uncancel() <= self._cancelled_before
            if is_own and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error
