"""The admission queue: which run gets a slot next. A pure decision; the network locks around it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from operator import index
from typing import Generic, NamedTuple, TypeVar

from ..errors import PropertyError

__all__ = ["AdmissionQueue", "Ticket", "next_age"]

S = TypeVar("S")
R = TypeVar("R")

_ages = itertools.count(1)


def next_age() -> int:
    """Give a run its age: lower is older, over all networks of the process. Thread-safe."""
    return next(_ages)


class Ticket(NamedTuple):
    """A run's place in every queue it waits in: by priority, then age. Lower goes first."""

    negative_priority: int
    age: int

    @classmethod
    def of(cls, priority: int) -> Ticket:
        """Make the ticket of a run that is asked for now; a higher priority goes first.

        Raises PropertyError for what is no whole number.
        """
        try:
            return tuple.__new__(cls, (-index(priority), next(_ages)))
        except TypeError:
            raise PropertyError(
                f"priority is {priority!r}; give a whole number: a higher one goes first, and 0 is "
                f"what others have"
            ) from None


class AdmissionQueue(Generic[S, R]):
    """Slots and the runs that wait for one. Not thread-safe; O(log n) a call.

    Whoever waits goes by ticket. A run that is dropped never gets a slot.
    """

    def __init__(self, slots: Iterable[S] = ()) -> None:
        self._idle = list(slots)
        self._heap: list[tuple[Ticket, int, R]] = []
        self._waiting: dict[R, int] = {}
        """The entry's number for each run that waits; a heap entry without one was dropped."""
        self._numbers = itertools.count()

    @property
    def waiting_count(self) -> int:
        """How many runs wait for a slot."""
        return len(self._waiting)

    @property
    def idle_count(self) -> int:
        """How many slots no run has."""
        return len(self._idle)

    def add_slots(self, slots: Iterable[S]) -> None:
        """Take in idle slots; before the first run."""
        self._idle.extend(slots)

    def take(self) -> S | None:
        """Give out an idle slot, if there is one; then no run waits."""
        return self._idle.pop() if self._idle else None

    def offer(self, ticket: Ticket, run: R) -> S | None:
        """Give the run an idle slot, or None: it waits now."""
        if self._idle:
            return self._idle.pop()
        number = self._waiting[run] = next(self._numbers)
        heapq.heappush(self._heap, (ticket, number, run))
        return None

    def release(self, slot: S) -> R | None:
        """Take a slot back and name the run that has it now; None: it is idle."""
        while self._waiting:
            _, number, run = heapq.heappop(self._heap)
            if self._waiting.get(run) == number:
                del self._waiting[run]
                return run
        self._idle.append(slot)
        return None

    def drop(self, run: R) -> bool:
        """Take a waiting run out; False if it does not wait (any more)."""
        if self._waiting.pop(run, None) is None:
            return False
        if len(self._heap) > 2 * len(self._waiting) + 8:
            self._heap = [entry for entry in self._heap if self._waiting.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
        return True
