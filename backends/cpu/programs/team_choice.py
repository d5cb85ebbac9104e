"""How many threads the runs of a stream compute with: a team while CPUs are free. Pure.

Theory of operation. A team waits for its slowest thread after every primitive. If somebody else
has the CPU of one of them, each of a hundred primitives waits for a time slice, and one thread
alone would have been done long before. Two facts decide:

- A team whose CPUs are free never lets its caller sleep, because the waits are shorter than the
  time that a waiting thread looks for the others. So wall time that the caller spent on no CPU says
  that the run was held up, on its own CPU or on a mate's. Runs that were held up halve the team.
- A smaller team learns nothing about the CPUs that it has left. ``LaneTeam`` asks the system how
  many of them were free, and the team grows into these. Where the system does not say, it grows to
  try. It also tries, but seldom, where a CPU is free half of the time: what uses it in short turns,
  as an event loop does, holds no run up.

A team that is held up again soon after it grew has to wait longer each time.
"""

from __future__ import annotations

__all__ = ["TeamChoice"]

HELD_UP_NS = 500_000
"""Less than this is lost to interrupts and to what the process does beside its runs."""
HELD_UP_SHARE = 0.2
HELD_UP_WEIGHT = 2
HELD_UP_MOST = 4
"""A run that was held up adds the weight, another takes one off; the most of it halves the team."""

LOOK_NS = 100_000_000
"""How long a smaller team waits before it looks for free CPUs: ten ticks of the system's clock."""
LONGEST_WAIT_NS = 6_400_000_000
RELAPSE_NS = 1_000_000_000
"""A team that is held up within this time after it grew should not have grown."""
FREE_MARGIN = 0.15
"""A CPU of which somebody else has no more than this is free."""
TRY_MARGIN = 0.6
"""A CPU of which somebody else has no more than this is worth a try."""
WAITS_BEFORE_TRY = 10


class TeamChoice:
    """Chooses the threads of one stream, ``most`` or a half, a quarter, ... of it; not thread-safe.

    ``size`` is for the next run. Times are of any clock that does not go back.
    """

    def __init__(self, most: int) -> None:
        self.most = self.size = most
        self._held_up = 0
        self._wait_ns = LOOK_NS
        self._look_ns = self._shrunk_ns = 0
        self._grown_ns = -RELAPSE_NS

    def ran(self, size: int, wall_ns: int, caller_ns: int, now_ns: int) -> bool:
        """Take note of a run by ``size`` threads; True if it makes the team smaller.

        ``caller_ns`` is how long its caller was on a CPU.
        """
        if size != self.size or size == 1:
            return False
        lost_ns = wall_ns - caller_ns
        if lost_ns < HELD_UP_NS or lost_ns < HELD_UP_SHARE * wall_ns:
            self._held_up = max(0, self._held_up - 1)
            return False
        self._held_up += HELD_UP_WEIGHT
        if self._held_up < HELD_UP_MOST:
            return False
        is_relapse = now_ns - self._grown_ns < RELAPSE_NS
        self._wait_ns = min(2 * self._wait_ns, LONGEST_WAIT_NS) if is_relapse else LOOK_NS
        self._shrunk_ns = now_ns
        self._set(size // 2, now_ns)
        return True

    def wants_look(self, now_ns: int) -> bool:
        """Return whether it is time to ask how many CPUs are free."""
        return self.size < self.most and now_ns >= self._look_ns

    def looked(self, free_cpus: float | None, now_ns: int) -> bool:
        """Take what the system says, this stream's own CPU included; True if the team grows.

        None is for a system that does not tell: then the team grows by one step, to try.
        """
        reachable = next_larger = self._next_larger(self.size)
        if free_cpus is not None:
            reachable = self._reachable(free_cpus + FREE_MARGIN)
            is_patient = now_ns - self._shrunk_ns >= WAITS_BEFORE_TRY * self._wait_ns
            if reachable == self.size and is_patient and next_larger <= free_cpus + TRY_MARGIN:
                reachable = next_larger
        if reachable == self.size:
            self._look_ns = now_ns + LOOK_NS
            return False
        self._grown_ns = now_ns
        self._set(reachable, now_ns)
        return True

    def _reachable(self, cpus: float) -> int:
        """Return the largest size for which the CPUs suffice, no smaller than now."""
        size = self.size
        while size < self.most and self._next_larger(size) <= cpus:
            size = self._next_larger(size)
        return size

    def _next_larger(self, size: int) -> int:
        """Return the next of ``most``, its half, its quarter, ..., from the other end."""
        larger = self.most
        while larger // 2 > size:
            larger //= 2
        return larger

    def _set(self, size: int, now_ns: int) -> None:
        self.size = max(1, size)
        self._held_up = 0
        self._look_ns = now_ns + self._wait_ns

    def __repr__(self) -> str:
        return f"<TeamChoice {self.size} of {self.most} threads>"
