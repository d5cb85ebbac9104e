"""The team of one stream under a quota of CPU time: how large the next run's may be."""

from __future__ import annotations

import time
import weakref

from ....executors import Lane, QuotaMeter
from ....executors.late_imports import late_imports

__all__ = ["LaneTeam"]

READ_NS = 2_000_000
"""How old a reading of the quota's account may be: a hundred times as long as it takes."""


class LaneTeam:
    """Sizes the team of a stream, for all networks that compute there; on the stream's thread.

    ``size_now``, that of the latest run, may be read on any thread.
    """

    __slots__ = ("__weakref__", "_budget", "_meter", "_own_ns", "_read_ns", "size_now")

    def __init__(self, meter: QuotaMeter, most: int) -> None:
        with late_imports:
            from .quota_budget import QuotaBudget

        self._meter, self._budget = meter, QuotaBudget(most)
        self._own_ns = 0
        self._read_ns = -READ_NS
        self.size_now = most

    @classmethod
    def of_lane(cls, lane: Lane) -> LaneTeam | None:
        """Return the stream's team, made by the first network that computes there.

        None where no quota is known, or the stream has one thread.
        """
        known = lane.local.get(cls)
        team: LaneTeam | None = None if known is None else known()
        if team is None and lane.thread_count > 1:
            meter = QuotaMeter.open()
            if meter is not None:
                team = cls(meter, lane.thread_count)
                lane.local[cls] = weakref.ref(team)
        return team

    def size_for(self, run_ns: int, base_ns: int) -> int:
        """Choose the threads of the next run, which takes ``run_ns`` by a whole team.

        ``base_ns`` is how long it takes by one that the quota always allows; 0 is not known.
        """
        now_ns = time.monotonic_ns()
        self._read_if_old(now_ns)
        self.size_now = size = self._budget.size(run_ns, base_ns, now_ns)
        return size

    def ran(self, size: int, caller_ns: int) -> None:
        """Take note of a run by ``size`` threads, whose caller had a CPU for ``caller_ns``."""
        self._own_ns += size * caller_ns
        self._read_if_old(time.monotonic_ns())

    def _read_if_old(self, now_ns: int) -> None:
        if now_ns - self._read_ns < READ_NS:
            return
        self._read_ns = now_ns
        try:
            reading = self._meter.reading()
        except (OSError, ValueError, MemoryError):
            reading = None
        if reading is None:
            self._budget.lose_period()
        else:
            self._budget.read(reading, self._own_ns)
            self._own_ns = 0
