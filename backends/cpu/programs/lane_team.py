"""The team of one stream: how large it is now, and what its runs and the system say of the CPUs."""

from __future__ import annotations

import logging
import time
import weakref

from ....errors import DeviceError
from ....executors import CpuLoad, Lane, allowed_cpus
from ..onednn.headroom import check_threads, forget_threads
from .team_choice import TeamChoice

__all__ = ["LaneTeam"]

_log = logging.getLogger("aioinfer")


class LaneTeam:
    """Sizes the team of a stream, for all networks that compute there; on the stream's thread.

    ``size`` may be read on any thread.
    """

    __slots__ = ("__weakref__", "_choice", "_lane_name", "_load", "_own_ns", "_since_ns", "size")

    def __init__(self, lane: Lane) -> None:
        self._choice = TeamChoice(lane.thread_count)
        self._lane_name = lane.name
        self._load = CpuLoad()
        self._own_ns = self._since_ns = 0
        self.size = self._choice.size

    @classmethod
    def of_lane(cls, lane: Lane) -> LaneTeam:
        """Return the stream's team, made by the first network that computes there."""
        known = lane.local.get(cls)
        team: LaneTeam | None = None if known is None else known()
        if team is None:
            team = cls(lane)
            lane.local[cls] = weakref.ref(team)
        return team

    def ran(self, size: int, wall_ns: int, caller_ns: int) -> None:
        """Take note of a run by ``size`` threads, whose caller had a CPU for ``caller_ns``."""
        choice, now_ns = self._choice, time.monotonic_ns()
        if choice.ran(size, wall_ns, caller_ns, now_ns):
            self._changed("held up by others on its CPUs")
            forget_threads(self.size)
            self._start_measuring(now_ns)
        elif choice.size < choice.most:
            self._own_ns += caller_ns * size
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
            return min(free + self._own_ns / elapsed_ns, allowed_cpus().whole_count)
        except (OSError, ValueError, MemoryError):
            return None

    def _can_grow(self) -> bool:
        """Tell if the threads of the whole team can be started; libgomp does not ask."""
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
        self.size = self._choice.size
        _log.debug("%s computes with %d threads: %s", self._lane_name, self.size, why)
