"""Which of the requests that wait go together in the next run. A pure decision."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from ...runtime.runs.admission import MOST_OVERTAKINGS, Ticket

__all__ = ["Collector", "Pace"]

_by_ticket = attrgetter("ticket")


class Member(Protocol):
    """What the collector asks of a request that waits."""

    ticket: Ticket
    row_count: int
    key: Hashable
    """Only members of equal keys share a run; None: this one goes alone."""
    arrived_s: float


M = TypeVar("M", bound=Member)


@dataclass(frozen=True)
class Pace:
    """How many runs may be under way: ``busy_count`` keep the device busy, ``most_count`` fit.

    What lies between is for full runs, which lose nothing by going early. A run that is not full
    goes as soon as the device has time for it, or after ``timeout_s``, counted from the arrival of
    its oldest member, if that is later.
    """

    busy_count: int
    most_count: int
    timeout_s: float = 0.0


class Collector(Generic[M]):
    """Requests that wait, and the runs that they are to form. Not thread-safe; O(n log n) a call.

    A run has up to ``most_rows`` rows, or one member of more. It begins with the first by ticket;
    after MOST_OVERTAKINGS runs without the member that has waited longest, with that one. The
    others follow by their tickets, as far as they fit.
    """

    def __init__(self, most_rows: int, pace: Pace) -> None:
        self.most_rows, self.pace = most_rows, pace
        self.row_count = 0
        """The rows that wait."""
        self._waiting: dict[M, None] = {}
        self._overtakings = 0
        """How many runs in a row left the member behind that has waited longest."""

    @property
    def waiting_count(self) -> int:
        """How many members wait."""
        return len(self._waiting)

    def add(self, member: M) -> None:
        """Have a member wait."""
        self._waiting[member] = None
        self.row_count += member.row_count

    def drop(self, member: M) -> bool:
        """Take a member out; False if it does not wait (any more)."""
        if member not in self._waiting:
            return False
        del self._waiting[member]
        self.row_count -= member.row_count
        return True

    def due_at_s(self, run_count: int) -> float | None:
        """Say from when on a run may begin, with this many under way; None: not before one ends.

        0.0: at once.
        """
        if not self._waiting or run_count >= self.pace.most_count:
            return None
        if self.row_count >= self.most_rows:
            return 0.0
        if run_count >= self.pace.busy_count:
            return None
        if not self.pace.timeout_s:
            return 0.0
        return next(iter(self._waiting)).arrived_s + self.pace.timeout_s

    def take_group(self) -> list[M]:
        """Take out the members of the next run, at least one, the first by ticket first."""
        oldest = next(iter(self._waiting))
        is_overdue = self._overtakings >= MOST_OVERTAKINGS
        first = oldest if is_overdue else min(self._waiting, key=_by_ticket)
        group = [first]
        if first.key is not None and len(self._waiting) > 1:
            left = self.most_rows - first.row_count
            alike = [item for item in self._waiting if item.key == first.key and item is not first]
            for member in sorted(alike, key=_by_ticket):
                if member.row_count <= left:
                    group.append(member)
                    left -= member.row_count
        for member in group:
            self.drop(member)
        self._overtakings = self._overtakings + 1 if oldest in self._waiting else 0
        return group
