"""Which device gets which request next. A pure decision: time and requests are arguments.

Theory of operation. Each device has a number of places, and each place is thought of as working off
runs one behind the other, each taking the device's mean time. A request that waits is given to an
idle place unless the busy ones are expected to end it, and all that wait before it, sooner: the
ends that all places would make, in the order of time, go to the requests in the order of their
turns. So a slow device gets a request only if that one would otherwise end later, and none waits
for a device that is late itself: what is overdue is expected to take as long again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from ...runtime.runs.admission import MOST_OVERTAKINGS, Ticket
from .properties import EARLIEST_END, ROUND_ROBIN

__all__ = ["Balancer", "DeviceLoad", "ServiceTime"]

LATEST = 16
"""From how many runs the mean is taken: enough to be steady, few enough to follow a change."""
PASSED_OVER = 512
"""After this number of requests that went past it, an idle device gets one, to be measured again:
rarely enough that 99 % of the requests do not notice."""


class Waiting(Hashable, Protocol):
    """What the balancer asks of a request that waits."""

    ticket: Ticket


R = TypeVar("R", bound=Waiting)


class ServiceTime:
    """How long a device takes for a run: the mean of the middle half of the latest ones.

    Of fewer than four, the shortest. ``mean_s`` is None before the first.
    """

    def __init__(self) -> None:
        self.mean_s: float | None = None
        self._latest: deque[float] = deque(maxlen=LATEST)

    def note(self, taken_s: float) -> None:
        """Add what a run took that has ended well."""
        latest = self._latest
        latest.append(taken_s)
        count = len(latest)
        if count < 4:
            self.mean_s = min(latest)
            return
        outer = count // 4
        middle = sorted(latest)[outer : count - outer]
        self.mean_s = sum(middle) / len(middle)


class DeviceLoad:
    """What is known of one device: its places, what they are busy with, and how long that takes."""

    def __init__(self, name: str, place_count: int) -> None:
        self.name, self.place_count = name, place_count
        self.service = ServiceTime()
        self.started: dict[Hashable, float] = {}
        """The runs that it has now, and when each was given to it."""
        self.is_out = False
        """It has failed and not been seen to work since."""
        self.passed_over_count = 0
        self.run_count = 0
        self.warm_since_s: float | None = None
        """When its first run ended, which has built what later ones find. Runs that were there
        meanwhile have waited for that, and tell nothing of its speed."""

    @property
    def has_room(self) -> bool:
        """True if a place is idle."""
        return len(self.started) < self.place_count

    def expected_s(self) -> float:
        """How long a run would take that an idle place gets now; 0 where it is to be measured."""
        mean_s = self.service.mean_s
        if mean_s is not None:
            return 0.0 if self.passed_over_count >= PASSED_OVER else mean_s
        return math.inf if self.started else 0.0  # one run at a time finds out

    def ends_before(self, end_s: float, now_s: float, most: int) -> int:
        """Count the runs that its busy places would end before then, after those they have."""
        mean_s = self.service.mean_s
        if mean_s is None:
            return 0
        count = 0
        for started_s in self.started.values():
            left_s = started_s + mean_s - now_s
            free_s = now_s + abs(left_s)  # what is overdue takes as long again
            if math.isinf(end_s) or free_s + mean_s <= free_s:
                count += most if free_s < end_s else 0
            else:
                count += max(0, math.ceil((end_s - free_s) / mean_s - 1e-9) - 1)
            if count >= most:
                return most
        return count


class Balancer(Generic[R]):
    """The requests that wait for a device, and the devices. Not thread-safe.

    ``loads`` are in the order of preference; ``order`` are those that get requests, as a user may
    change it. With no device left that has not failed, the others are used.
    """

    def __init__(self, loads: Sequence[DeviceLoad], policy: str = EARLIEST_END) -> None:
        self.loads = list(loads)
        self.order = list(loads)
        self.policy = policy
        self._waiting: list[R] = []
        self._overtakings = 0
        self._last: DeviceLoad | None = None

    @property
    def waiting_count(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def add(self, run: R) -> None:
        """Have a request wait."""
        waiting, ticket = self._waiting, run.ticket
        index = len(waiting)
        while index and waiting[index - 1].ticket > ticket:
            index -= 1
        waiting.insert(index, run)

    def drop(self, run: R) -> bool:
        """Take a request out; False if it does not wait (any more)."""
        if run not in self._waiting:
            return False
        self._waiting.remove(run)
        return True

    def take(self, now_s: float, behind_count: int = 0) -> tuple[R, DeviceLoad] | None:
        """Take out the request that is to start now, and say where; None: none is.

        ``behind_count`` requests wait behind those that are here. If it raises (no memory), the
        request waits on: that it leaves those that wait is the last that is done.
        """
        waiting = self._waiting
        if not waiting:
            return None
        rooms = [load for load in self.usable() if load.has_room]
        if not rooms:
            return None
        load, place = rooms[0], 0
        if self.policy == ROUND_ROBIN:
            load = self._next_in_turn(rooms)
        elif self.policy == EARLIEST_END:
            most = len(waiting) + behind_count
            load = min(rooms, key=DeviceLoad.expected_s)
            end_s = now_s + load.expected_s()
            place = sum(busy.ends_before(end_s, now_s, most) for busy in self.usable())
            if place >= most:
                return None
        run = self._next(min(place, len(waiting) - 1))
        for other in rooms:
            if other is not load:
                other.passed_over_count += 1
        if load.passed_over_count >= PASSED_OVER:
            load.service = ServiceTime()  # what is known of it is old
        load.passed_over_count = 0
        taken = run, load
        self.give(run, load, now_s)
        waiting.remove(run)
        return taken

    def give(self, run: Hashable, load: DeviceLoad, now_s: float) -> None:
        """Note that a device has a request from now on; if it raises, it has not."""
        load.run_count += 1
        self._last = load
        load.started[run] = now_s

    def forget(self, run: Hashable) -> None:
        """Free the place that a device has for a request, if one has."""
        for load in self.loads:
            load.started.pop(run, None)

    def take_all(self) -> list[R]:
        """Take out all that wait; none if a device is busy, after which they are looked at."""
        if any(load.started for load in self.loads):
            return []
        taken, self._waiting = self._waiting, []
        return taken

    def ended(self, run: Hashable, load: DeviceLoad, now_s: float, *, is_well: bool) -> float:
        """Note that a device is done with a request, and return how long it had it."""
        started_s = load.started.pop(run)
        if is_well and load.warm_since_s is None:
            load.warm_since_s = now_s
        elif is_well and load.warm_since_s is not None and started_s >= load.warm_since_s:
            load.service.note(now_s - started_s)
        return now_s - started_s

    def usable(self) -> list[DeviceLoad]:
        """List the devices that may get requests, the preferred one first."""
        return [load for load in self.order if not load.is_out] or self.order

    def elsewhere(self, tried: Sequence[DeviceLoad]) -> DeviceLoad | None:
        """Choose where a request goes that has failed on these devices; None: nowhere."""
        left = [load for load in self.usable() if load not in tried]
        left = left or [load for load in self.order if load not in tried]

        def end_s(load: DeviceLoad) -> float:
            rounds = 1 + len(load.started) // load.place_count
            return rounds * (load.service.mean_s or 0.0)

        return min(left, key=end_s, default=None)

    def look_again_s(self, now_s: float) -> float | None:
        """Return when to look again though nothing has happened; None: something must happen first.

        Requests wait here beside an idle device, because a busy one should end them sooner.
        """
        if self.policy != EARLIEST_END or not self._waiting:
            return None
        rooms = [load for load in self.usable() if load.has_room]
        expected_s = min((load.expected_s() for load in rooms), default=math.inf)
        return None if math.isinf(expected_s) else now_s + expected_s

    def _next_in_turn(self, rooms: Sequence[DeviceLoad]) -> DeviceLoad:
        order, last = self.order, self._last
        first = order.index(last) + 1 if last in order else 0
        turns = [*order[first:], *order[:first]]
        return next(load for load in turns if load in rooms)

    def _next(self, place: int) -> R:
        """Choose the request of this turn, unless the one that came first has waited too long."""
        waiting = self._waiting
        if len(waiting) == 1:
            self._overtakings = 0
            return waiting[0]
        oldest = min(waiting, key=lambda run: run.ticket[1])
        run = oldest if self._overtakings >= MOST_OVERTAKINGS else waiting[place]
        if run is oldest:
            self._overtakings = 0
        elif run.ticket[0] < oldest.ticket[0]:
            self._overtakings += 1
        return run
