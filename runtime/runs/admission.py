"""The admission queue: which run gets a slot next. A pure decision; the network locks around it."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable
from operator import index
from typing import Generic, TypeVar

from ...errors import PropertyError
from ..properties.properties import UNBOUNDED

__all__ = ["MOST_OVERTAKINGS", "AdmissionQueue", "Ticket", "ages", "ticket_of"]

MOST_OVERTAKINGS = 7
"""How many slots in a row may go past the run that has waited longest: an eighth of the device is
what low priorities can cost high ones, and for the low ones enough to get on."""

S = TypeVar("S")
R = TypeVar("R")

ages = itertools.count(1)
"""Tells runs apart, over all networks."""

Ticket = tuple[int, int]
"""A run's place in every queue it waits in, (-priority, age): lower goes first. No class, because
each run makes one."""


def ticket_of(priority: int) -> Ticket:
    """Make the ticket of a run that is asked for now; a higher priority goes first.

    Raises PropertyError for what is no whole number.
    """
    try:
        return -index(priority), next(ages)
    except TypeError:
        raise PropertyError(
            f"priority is {priority!r}; give a whole number: a higher one goes first, and 0 is "
            f"what others have",
            "priority",
            value=priority,
        ) from None


class AdmissionQueue(Generic[S, R]):
    """Slots and the runs that wait for one. Not thread-safe; O(log n) a call.

    Runs wait in the order of their tickets, but none is overtaken for ever: when MOST_OVERTAKINGS
    slots in a row have gone to others, the next one goes to the run that has waited longest. So a
    run with k runs before it, in order of arrival, has a slot after (MOST_OVERTAKINGS + 1) * (k +
    1) slots at the latest, whatever comes meanwhile. A run that is dropped never gets a slot.

    ``most_waiting``: with this many runs waiting ``is_full`` is true; UNBOUNDED: never.
    """

    def __init__(self, slots: Iterable[S] = (), most_waiting: int = UNBOUNDED) -> None:
        self.idle = list(slots)
        """The slots that no run has; one may be taken while no run waits."""
        self.most_waiting = most_waiting
        self._heap: list[tuple[Ticket, int, R]] = []
        self.waiting: OrderedDict[R, int] = OrderedDict()
        """The entry's number for each run that waits, in order of arrival; a heap
        entry without one was dropped, or had its slot out of turn."""
        self._numbers = itertools.count()
        self._overtakings = 0
        """How many slots in a row went past the run that has waited longest."""

    @property
    def waiting_count(self) -> int:
        """How many runs wait for a slot."""
        return len(self.waiting)

    @property
    def is_full(self) -> bool:
        """True if a run that comes now would wait, and as many wait as may."""
        return 0 <= self.most_waiting <= len(self.waiting) and not self.idle

    def offer(self, ticket: Ticket, run: R) -> S | None:
        """Give the run an idle slot, or None: it waits now, even if that is one too many."""
        if self.idle:
            return self.idle.pop()
        number = next(self._numbers)
        heapq.heappush(self._heap, (ticket, number, run))
        self.waiting[run] = number  # last, so that without memory for any of it the run is not here
        return None

    def release(self, slot: S) -> R | None:
        """Take a slot back and name the run that has it now; None: it is idle."""
        if not self.waiting:
            self.idle.append(slot)
            return None
        self._sweep()  # first: nothing may fail once a run does not wait any more
        longest = next(iter(self.waiting))
        run = longest if self._overtakings >= MOST_OVERTAKINGS else self._first_by_ticket()
        self._overtakings = 0 if run is longest else self._overtakings + 1
        del self.waiting[run]
        return run

    def drop(self, run: R) -> bool:
        """Take a waiting run out; False if it does not wait (any more)."""
        self._sweep()
        if self.waiting.pop(run, None) is None:
            return False
        if not self.waiting:
            self._overtakings = 0
        return True

    def _first_by_ticket(self) -> R:
        while True:
            _, number, run = heapq.heappop(self._heap)
            if self.waiting.get(run) == number:
                return run

    def _sweep(self) -> None:
        """Forget the entries of runs that do not wait any more, if they are the most."""
        if len(self._heap) > 2 * len(self.waiting) + 8:
            self._heap = [entry for entry in self._heap if self.waiting.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
