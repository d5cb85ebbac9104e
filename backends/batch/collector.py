"""Which of the requests that wait go together in the next run, and when. A pure decision."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar

from ...runtime.runs.admission import MOST_OVERTAKINGS, Ticket

__all__ = ["Collector", "Pace", "begin_by"]


class Member(Protocol):
    """What the collector asks of a request that waits; it stays as it is, but for ``grow``."""

    ticket: Ticket
    deadline_s: float
    """When its caller stops waiting; infinity: never."""
    row_count: int
    key: Hashable
    """Only members of equal keys share a run; None: this one goes alone."""
    begin_by_s: float
    """Where runs wait for more: when its own begins at the latest, if the device is idle."""


M = TypeVar("M", bound=Member)
_Order = tuple[int, float, int, int]
"""Priority, deadline, age, and a number of the collector's own."""
_Entry = tuple[_Order, M]


@dataclass(frozen=True)
class Pace:
    """How many runs may be under way: ``busy_count`` keep the device busy, ``most_count`` fit.

    What lies between is for full runs, which lose nothing by going early. A run that is not full
    goes as soon as the device has time for it, or, if it ``is_timed``, when the first of those that
    wait has to begin, if that is later.
    """

    busy_count: int
    most_count: int
    is_timed: bool = False


def begin_by(arrived_s: float, timeout_s: float, deadline_s: float, service_s: float) -> float:
    """Return until when a request that arrived then may wait for more to share its run. Pure.

    A deadline leaves the run twice the time that runs take, ``service_s``; where that is not known,
    0, half of what there is.
    """
    latest_s = arrived_s + timeout_s
    if deadline_s == inf:
        return latest_s
    left_s = 2 * service_s or (deadline_s - arrived_s) / 2
    return max(arrived_s, min(latest_s, deadline_s - left_s))


class Collector(Generic[M]):
    """Requests that wait, and the runs that they are to form. Not thread-safe.

    A run has up to ``most_rows`` rows, or one member of more. It begins with the first by priority,
    then deadline, then age; after MOST_OVERTAKINGS runs without the member that has waited longest,
    with that one. The others follow in the same order, as far as they fit; past ``most_rows`` of
    them that do not fit no other is looked at. O(log n) for a member, and O(k) for a run where k
    different keys wait.

    ``waiting`` is what counts. All else follows from it, and is made anew if an error (no memory)
    has come amid a change: a change of ``waiting`` is the last that each method does.
    """

    def __init__(self, most_rows: int, pace: Pace) -> None:
        self.most_rows, self.pace = most_rows, pace
        self.row_count = 0
        """The rows that wait."""
        self.waiting: dict[M, _Entry[M]] = {}
        """Those that wait, in order of arrival; what lines and times hold beside these has left."""
        self._lines: dict[Hashable, _Line[M]] = {}
        self._times: list[tuple[float, int, M]] = []
        self._full_count = 0
        """How many lines have a full run."""
        self._numbers = count()
        self._overtakings = 0
        """How many runs in a row left the member behind that has waited longest."""
        self._is_amid = False
        """A change has begun, and not ended."""

    @property
    def waiting_count(self) -> int:
        """How many members wait."""
        return len(self.waiting)

    def add(self, member: M) -> bool:
        """Have a member wait; True if there is a full run now with it."""
        self._begin_change()
        (priority, age), number = member.ticket, next(self._numbers)
        entry = ((priority, member.deadline_s, age, number), member)
        key, row_count = member.key, member.row_count
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        heappush(line.entries, entry)
        if self.pace.is_timed:
            heappush(self._times, (member.begin_by_s, number, member))
        is_full = self._count(line, row_count)
        self.waiting[member] = entry
        self._is_amid = False
        return is_full

    def grow(self, member: M, row_count: int) -> bool:
        """Add rows to a member that waits, or take them away; True if there is a full run now."""
        self._begin_change()
        is_full = self._count(self._lines[member.key], row_count)
        member.row_count += row_count
        self._is_amid = False
        return is_full

    def _begin_change(self) -> None:
        if self._is_amid:
            self._make_anew()
        self._is_amid = True

    def _make_anew(self) -> None:
        """Bring in order what follows from ``waiting``."""
        self._lines, self._times = {}, []
        self.row_count = self._full_count = 0
        for member, entry in self.waiting.items():
            line = self._lines.setdefault(member.key, _Line())
            heappush(line.entries, entry)
            self._count(line, member.row_count)
            if self.pace.is_timed:
                heappush(self._times, (member.begin_by_s, entry[0][3], member))
        self._is_amid = False

    def _count(self, line: _Line[M], row_count: int) -> bool:
        """Add rows to a line, or take them away; True if it has a full run now."""
        was_full = line.row_count >= self.most_rows
        line.row_count += row_count
        self.row_count += row_count
        is_full = line.row_count >= self.most_rows
        self._full_count += is_full - was_full
        return is_full

    def drop(self, member: M) -> bool:
        """Take a member out; False if it does not wait (any more)."""
        if member not in self.waiting:
            return False
        self._begin_change()
        self._count(self._lines[member.key], -member.row_count)
        self._sweep(member.key)
        del self.waiting[member]
        self._is_amid = False
        return True

    def take_all(self) -> list[M]:
        """Take out all that wait, in order of arrival."""
        self._is_amid = True
        taken = list(self.waiting)
        self.waiting.clear()
        return taken

    def due_at_s(self, run_count: int) -> float | None:
        """Return from when on a run may begin, with this many under way; None: not before one ends.

        0.0: at once.
        """
        if self._is_amid:
            self._make_anew()
        if not self.waiting or run_count >= self.pace.most_count:
            return None
        if self._full_count:
            return 0.0
        if run_count >= self.pace.busy_count:
            return None
        return self._first_time_s() if self.pace.is_timed else 0.0

    def take_group(self) -> list[M]:
        """Take out the members of the next run, at least one, the first in order first."""
        self._begin_change()
        waiting = self.waiting
        oldest = next(iter(waiting))
        first = oldest if self._overtakings >= MOST_OVERTAKINGS else self._first_in_order()
        line = self._lines[first.key]
        group, left = [first], self.most_rows - first.row_count
        unfit: list[_Entry[M]] = []
        if first.key is not None:
            entries = line.entries
            while left > 0 and entries and len(unfit) <= self.most_rows:
                entry = heappop(entries)
                member = entry[1]
                if member is first or waiting.get(member) is not entry:
                    continue
                if member.row_count > left:
                    unfit.append(entry)
                    continue
                group.append(member)
                left -= member.row_count
            for entry in unfit:
                heappush(entries, entry)
        self._count(line, left - self.most_rows)
        self._sweep(first.key)
        for member in group:
            del waiting[member]
        self._overtakings = self._overtakings + 1 if oldest in waiting else 0
        self._is_amid = False
        return group

    def _sweep(self, key: Hashable) -> None:
        """Forget what has left, where that is the most."""
        line, waiting = self._lines[key], self.waiting
        if not line.row_count:
            del self._lines[key]
        elif len(line.entries) > 2 * line.row_count + 8:
            line.entries = [entry for entry in line.entries if waiting.get(entry[1]) is entry]
            heapify(line.entries)
        if len(self._times) > 2 * len(waiting) + 8:
            self._times = [(item.begin_by_s, entry[0][3], item) for item, entry in waiting.items()]
            heapify(self._times)

    def _first_in_order(self) -> M:
        return min(map(self._head, self._lines.values()))[1]

    def _head(self, line: _Line[M]) -> _Entry[M]:
        entries = line.entries
        while self.waiting.get(entries[0][1]) is not entries[0]:
            heappop(entries)
        return entries[0]

    def _first_time_s(self) -> float:
        times = self._times
        while True:
            begin_by_s, number, member = times[0]
            entry = self.waiting.get(member)
            if entry is not None and entry[0][3] == number:
                return begin_by_s
            heappop(times)


class _Line(Generic[M]):
    """Those of one key, in their order, among them some that have left."""

    __slots__ = ("entries", "row_count")

    def __init__(self) -> None:
        self.entries: list[_Entry[M]] = []
        self.row_count = 0
        """Of those that wait."""
