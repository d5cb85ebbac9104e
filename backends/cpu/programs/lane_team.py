"""The team of one stream: how large it is now, and what its runs and the system say of the CPUs."""

from __future__ import annotations

import logging
import time
import weakref

from ....errors import DeviceError
from ....executors import CpuLoad, Lane, QuotaMeter, allowed_cpus
from ..onednn.headroom import check_threads, forget_threads
from .quota_budget import QuotaBudget
from .team_choice import TeamChoice

__all__ = ["LaneTeam"]

_log = logging.getLogger("aioinfer")

READ_NS = 2_000_000
"""How old a reading of the quota's account may be: a hundred times as long as it takes."""


class LaneTeam:
    """Sizes the team of a stream, for all networks that compute there; on the stream's thread.

    ``size`` is what the neighbours leave; a quota may bound single runs more. It may be read on any
    thread, as ``size_now``, that of the latest run.
    """

    __slots__ = (
        "__weakref__",
        "_account",
        "_choice",
        "_lane_name",
        "_load",
        "_own_ns",
        "_since_ns",
        "size",
        "size_now",
    )

    def __init__(self, lane: Lane) -> None:
        self._choice = TeamChoice(lane.thread_count)
        self._lane_name = lane.name
        self._load = CpuLoad()
        self._own_ns = self._since_ns = 0
        self.size = self.size_now = self._choice.size
        meter = QuotaMeter.open()
        self._account = None if meter is None else _Account(meter, lane.thread_count)

    @classmethod
    def of_lane(cls, lane: Lane) -> LaneTeam:
        """Return the stream's team, made by the first network that computes there."""
        known = lane.local.get(cls)
        team: LaneTeam | None = None if known is None else known()
        if team is None:
            team = cls(lane)
            lane.local[cls] = weakref.ref(team)
        return team

    @property
    def has_quota(self) -> bool:
        """True if ``size_for`` has to be asked before each run."""
        return self._account is not None

    def size_for(self, run_ns: int, base_ns: int) -> int:
        """Choose the threads of the next run, which takes ``run_ns`` by a whole team.

        ``base_ns`` is how long it takes by one that the quota always allows; 0 is not known.
        """
        size = self.size
        if self._account is not None:
            size = min(size, self._account.size_for(run_ns, base_ns, time.monotonic_ns()))
        self.size_now = size
        return size

    def ran(self, size: int, wall_ns: int, caller_ns: int) -> None:
        """Take note of a run by ``size`` threads, whose caller had a CPU for ``caller_ns``."""
        choice, now_ns = self._choice, time.monotonic_ns()
        computed, stood_still = size, False
        if self._account is not None:
            stood_still = self._account.ran(size * caller_ns, now_ns)
            if 1 < size < choice.size:
                size = choice.size  # a team that the quota made smaller is held up all the same
        if not stood_still and choice.ran(size, wall_ns, caller_ns, now_ns):
            self._changed("held up by others on its CPUs")
            forget_threads(self.size)
            self._start_measuring(now_ns)
        elif choice.size < choice.most:
            self._own_ns += caller_ns * computed
            if choice.wants_look(now_ns):
                self._look(now_ns)

    def _look(self, now_ns: int) -> None:
        free = self._free_cpus(now_ns - self._since_ns)
        if (free is None or free > self._choice.size) and not self._can_grow():
            free = 0.0
        if self._choice.looked(free, now_ns):
            self._changed("a try" if free is None else f"{free:.1f} CPUs are free")
        self._own_ns, self._since_ns = 0, now_ns

    def _free_cpus(self, elapsed_ns: int) -> float | None:
        """Ask the system; None if it does not tell, whatever it does instead."""
        try:
            free = self._load.idle_cpus()
            if free is None or elapsed_ns <= 0:
                return free
            allowed = allowed_cpus()
            most = allowed.whole_count if self._account is None else allowed.count
            return min(free + self._own_ns / elapsed_ns, most)
        except (OSError, ValueError, MemoryError):
            return None

    def _can_grow(self) -> bool:
        """Return whether the threads of the whole team can be started; libgomp does not ask."""
        try:
            check_threads(self._choice.most)
        except (DeviceError, MemoryError):
            return False
        return True

    def _start_measuring(self, now_ns: int) -> None:
        try:
            self._load.restart()
        except (OSError, ValueError, MemoryError):
            _log.debug("%s cannot ask the system for free CPUs", self._lane_name, exc_info=True)
        self._own_ns, self._since_ns = 0, now_ns

    def _changed(self, why: str) -> None:
        self.size = self.size_now = self._choice.size
        _log.debug("%s computes with %d threads: %s", self._lane_name, self.size, why)


class _Account:
    """Keeps a quota's budget up to date, at a bounded cost."""

    def __init__(self, meter: QuotaMeter, most: int) -> None:
        self._meter, self._budget = meter, QuotaBudget(most)
        self._own_ns = self._throttled_ns = 0
        self._read_ns = -READ_NS

    def size_for(self, run_ns: int, base_ns: int, now_ns: int) -> int:
        self._read_if_old(now_ns)
        return self._budget.size(run_ns, base_ns, now_ns)

    def ran(self, used_ns: int, now_ns: int) -> bool:
        """Take note of a run; True if the group was made to stand still meanwhile."""
        self._own_ns += used_ns
        before_ns = self._throttled_ns
        self._read_if_old(now_ns)
        return self._throttled_ns > before_ns

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
            self._own_ns, self._throttled_ns = 0, reading.throttled_ns
