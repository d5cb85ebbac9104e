"""What is enqueued between two events of a queue, when the device did it, and whether it failed.

A submission keeps its commands until the device has passed the event behind them. Then the commands
of each stage say when the device began and ended them, and are released; nothing is asked before,
because only the end of a command makes its times known. A wait for an event that has failed gives
no more than that (-14), so a submission whose event has failed asks each command, and takes what it
waited for into account: the first failure in that order is the cause. Not thread-safe by itself:
the streams of a device lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ....executors import DeviceClock, TellTimes
from .driver import DriverError, ErrorKind, Event

__all__ = ["Failure", "StageWork", "Submission", "Times", "failure_of"]

Times = tuple[int, int, int]
"""What TellTimes gets."""


class Named(Protocol):
    """A stream, as far as its submissions are concerned."""

    @property
    def name(self) -> str:
        """The stream's name, for messages."""


S = TypeVar("S", bound=Named)


class Failure(NamedTuple):
    """Why commands failed, and the name of the stream that they were in."""

    stream: str
    error: DriverError

    @property
    def is_cause(self) -> bool:
        """False if it says no more than that something before it has failed."""
        return self.error.kind is not ErrorKind.WAITED_FOR_FAILURE


class StageWork:
    """The commands of one stage in a submission: the first, the last, and what gets their times."""

    __slots__ = ("_distance_ns", "_enqueued_ns", "first", "last", "tell", "times")

    def __init__(self, first: Event, before_ns: int, after_ns: int) -> None:
        """``before_ns`` and ``after_ns``: the host's times around the enqueueing of the first."""
        self._enqueued_ns = before_ns, after_ns
        self._distance_ns = 0
        self.first: Event | None = first
        self.last: Event | None = first
        self.tell: TellTimes | None = None
        self.times: Times | None = None
        """None until they are read, or if the device does not know them."""

    def read(self, clock: DeviceClock, ready_ns: int, passed_ns: int) -> None:
        """Ask for the times, and release the events; a device that does not know leaves None.

        ``ready_ns``: when what it had to wait for was over. ``passed_ns``: when the queue was done
        with what came before, so that the clock's uncertainty never makes neighbours overlap.
        """
        first, last = self.first, self.last
        self.first = self.last = None
        assert first is not None
        assert last is not None
        try:
            enqueued = first.queued_ns
            began, ended = first.times_ns
            if last is not first:
                ended = last.times_ns[1]
        except DriverError:
            return
        if not 0 < enqueued <= began <= ended:  # a driver without these times says 0
            return
        before_ns, after_ns = self._enqueued_ns
        distance_ns = self._distance_ns = clock.read(enqueued, before_ns, after_ns)
        queued_ns = max(before_ns, ready_ns)
        began_ns = max(began + distance_ns, queued_ns, passed_ns)
        self.times = queued_ns, began_ns, max(ended + distance_ns, began_ns)

    def host_ns(self, device_ns: int) -> int:
        """Convert a time of the device within this work, whose times are known, to the host's."""
        assert self.times is not None
        _, began_ns, ended_ns = self.times
        return min(max(device_ns + self._distance_ns, began_ns), ended_ns)


class Submission(Generic[S]):
    """Commands of a stream between two events; ``marker`` stands behind them, once it is there."""

    __slots__ = (
        "awaited",
        "ended_ns",
        "events",
        "failure",
        "is_passed",
        "is_settled",
        "kept",
        "marker",
        "stream",
        "works",
    )

    def __init__(self, stream: S) -> None:
        self.stream = stream
        self.awaited: list[Submission[S]] = []
        """Sections that it waits for, mostly of other queues; until it is settled."""
        self.marker: Event | None = None
        """Its last command stands in where the driver refuses one."""
        self.events: list[Event] = []
        self.kept: list[object] = []
        """What is replayed or copied from and to, which must not go before it is over."""
        self.works: list[StageWork] = []
        self.is_passed = False
        """True once it is known, without asking the device, that it has passed the marker."""
        self.is_settled = False
        self.failure: Failure | None = None
        """Why it failed; known once it is settled."""
        self.ended_ns = 0
        """When the device ended its last stage, by the host; 0 if it is not known."""

    @property
    def is_over(self) -> bool | None:
        """True if the device has passed its marker, None if unknown; does not block."""
        if self.is_passed:
            return True
        try:
            return self.marker is not None and self.marker.is_over
        except DriverError:
            return None

    def settle(self, clock: DeviceClock, passed_ns: int) -> int:
        """Ask for the times and errors of a submission that is over, and tell the times.

        What it awaited is settled. Returns when the queue was done with it; ``passed_ns`` is when
        it was done with what came before.
        """
        marker, ready_ns = self.marker, 0
        assert marker is not None
        has_failed = bool(self.events) and marker is self.events[-1]  # it knows of itself alone
        for submission in self.awaited:
            ready_ns = max(ready_ns, submission.ended_ns)
            has_failed = has_failed or submission.failure is not None
        try:
            has_failed = has_failed or marker.failure is not None
        except DriverError:  # it cannot tell
            pass
        self.failure = self._find_failure(marker) if has_failed else None
        self.awaited = []
        for work in self.works:
            work.read(clock, ready_ns, passed_ns)
            if work.times is not None:
                passed_ns = self.ended_ns = work.times[2]
                if work.tell is not None:
                    work.tell(*work.times)
        self.is_passed = self.is_settled = True
        return passed_ns

    def _find_failure(self, marker: Event) -> Failure | None:
        found = [
            submission.failure for submission in self.awaited if submission.failure is not None
        ]
        if failure_of(marker) is not None or (self.events and marker is self.events[-1]):
            found += self._failures_of([*self.events, marker])
        return next((item for item in found if item.is_cause), found[0] if found else None)

    def _failures_of(self, events: Iterable[Event]) -> list[Failure]:
        errors = map(failure_of, events)
        return [Failure(self.stream.name, error) for error in errors if error is not None]


def failure_of(event: Event) -> DriverError | None:
    """Ask why a command has failed; None if it has not, or the driver cannot tell."""
    try:
        return event.failure
    except DriverError:
        return None
