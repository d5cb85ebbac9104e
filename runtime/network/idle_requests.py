"""The idle requests of a queue, by number: one given back goes to the longest waiting caller.

Ctrl-C is held back by the caller; it wakes the thread that waits here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from ...executors import TimerHandle
from ...executors.interrupt import Interrupt
from ..loops.completion import until
from ..runs.deadline import Deadline

__all__ = ["IdleRequests"]

Wake = Callable[[], None]


class _Place:
    """A place in line: gets the number of an idle request, or hands it on if it was left."""

    number = -1

    def __init__(self, give: Callable[[int], None], wake: Wake) -> None:
        self._give, self.wake = give, wake
        self._lock = threading.Lock()
        self._is_left = False

    def take(self, number: int) -> None:
        with self._lock:
            is_left = self._is_left
            if not is_left:
                self.number = number
        if is_left:
            self._give(number)
        else:
            self.wake()

    def leave(self) -> None:
        """Hand on what it got, or is about to get; twice is fine."""
        with self._lock:
            self._is_left = True
            number, self.number = self.number, -1
        if number >= 0:
            try:
                self._give(number)
            except MemoryError:  # for that call
                self._give(number)


class IdleRequests:
    """The numbers 0 to ``count`` - 1, all idle at first, in the order they came. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._idle = deque(range(count))
        self._waiting: deque[_Place] = deque()
        self._drained: list[Wake] = []

    def __len__(self) -> int:
        return len(self._idle)

    def take(
        self, woken: SimpleQueue[None], interrupt: Interrupt, deadline: Deadline | None
    ) -> int | None:
        """Take one, and block until there is one; None if interrupt or deadline comes first.

        The interrupt puts something into ``woken``.
        """
        place = _Place(self.give, lambda: woken.put(None))
        alarm: TimerHandle | None = None
        try:
            self._line_up(place)
            if deadline is not None and place.number < 0:
                alarm = deadline.clock.call_at(deadline.at_s, place.wake)
            woken.get()
            if alarm is not None:
                alarm.cancel()
        except BaseException:  # no thread for the timer, or no memory
            self._leave(place)
            if alarm is not None:
                alarm.cancel()
            raise
        if place.number >= 0 and not interrupt.has_come:
            return place.number
        self._leave(place)
        return None

    async def take_async(self, deadline: Deadline | None) -> int | None:
        """Take one, and suspend until there is one; None if the deadline comes first."""
        places: list[_Place] = []
        alarms: list[TimerHandle] = []

        def register(wake: Wake) -> None:
            place = _Place(self.give, wake)
            places.append(place)
            self._line_up(place)
            if deadline is not None and place.number < 0:
                alarms.append(deadline.clock.call_at(deadline.at_s, wake))

        def leave() -> None:
            for place in places:
                self._leave(place)
            for alarm in alarms:
                alarm.cancel()

        try:
            await until(register, leave)
            for alarm in alarms:
                alarm.cancel()
        except BaseException:
            leave()
            raise
        if places[0].number >= 0:
            return places[0].number
        leave()
        return None

    def give(self, number: int, *, is_first: bool = False) -> None:
        """Hand it to the longest waiting caller, or keep it: to be taken next, or as the last."""
        drained: list[Wake] = []
        with self._lock:
            place = self._waiting.popleft() if self._waiting else None
            if place is None:
                (self._idle.appendleft if is_first else self._idle.append)(number)
                if len(self._idle) == self._count:
                    drained, self._drained = self._drained, []
        if place is not None:
            try:
                place.take(number)
            except MemoryError:  # for that call, or for one of it: it may be made again
                place.take(number)
        for tell in drained:
            tell()

    def when_all(self, tell: Wake) -> None:
        """Call once all are idle; at once if they are."""
        with self._lock:
            if len(self._idle) < self._count:
                self._drained.append(tell)
                return
        tell()

    def forget(self, tell: Wake) -> None:
        """Take back what was given to ``when_all``."""
        with self._lock:
            if tell in self._drained:
                self._drained.remove(tell)

    def _line_up(self, place: _Place) -> None:
        with self._lock:
            if not self._idle:
                self._waiting.append(place)
                return
            place.number = self._idle.popleft()  # no other thread knows it yet
        place.wake()

    def _leave(self, place: _Place) -> None:
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
        place.leave()
