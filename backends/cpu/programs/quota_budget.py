"""How many threads a run may have of what is left of a CPU quota. Pure.

Theory of operation. A quota gives a group of processes CPU time in each period; when it is
used up they stand still until the next one. With 1.5 CPUs one thread leaves a third unused, and a
team of two is out of it after three quarters of each period. So runs have a team early in a period
and the *base*, the whole CPUs of the quota, as soon as it would not last to the end for the base:
all of the quota is used, and nothing stands still. A run that takes so long that a team is done
sooner even with standing still always has one.

When periods begin is not told, but how many have begun is. Two looks with one beginning between
them bracket it, and all later brackets, a whole number of periods on, cut what is in doubt. While
it may or may not have begun the base computes, and a period is taken to end late.

What others of the group use, which is all that this stream's runs do not account for, is expected
to go on. A group that is made to stand still nevertheless is used by what the account does not
show: then the base computes for a while, each time longer.
"""

from __future__ import annotations

import math

from ....executors import QuotaReading

__all__ = ["QuotaBudget"]

SLACK_NS = 1_000_000
"""How much later than the periods began a look may see it."""
MARGIN_SHARE = 0.03
"""The part of a quota that is left over: the kernel hands it out in slices, to each CPU its own."""
OTHERS_LEAST = 0.1
"""CPUs that others may use without a thread less in the base."""
HURT_SHARE = 0.2
"""The part of a period that a group has to stand still in one look to be said to suffer."""
LONGEST_PAUSE = 64
"""The most periods that the base computes for after a group stood still."""
CALM_PERIODS = 32
"""How many periods without standing still make earlier ones forgotten."""


class QuotaBudget:
    """Decides for one stream, from readings that do not go back in time; not thread-safe.

    ``most`` is the size of its whole team. Times are nanoseconds of the readings' clock.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._last: QuotaReading | None = None
        self._early_ns = self._late_ns = 0  # between them a period began
        self._is_known = False
        self._spent_ns = 0.0  # since the period's begin
        self._others = 0.0  # CPUs
        self._pause_count = 1
        self._hurt_ns: int | None = None
        self._resume_ns = 0

    def read(self, reading: QuotaReading, own_ns: int) -> None:
        """Take note of an account; ``own_ns`` is what runs of this stream used since the last."""
        last, self._last = self._last, reading
        if last is None or last[-2:] != reading[-2:] or not reading.quota_ns:
            self._is_known, self._spent_ns = False, 0.0
            return
        elapsed_ns = reading.now_ns - last.now_ns
        used_ns = max(0, reading.used_ns - last.used_ns)
        if elapsed_ns <= 0:
            self._spent_ns += used_ns
            return
        weight = min(1.0, elapsed_ns / reading.period_ns)
        self._others += (max(0, used_ns - own_ns) / elapsed_ns - self._others) * weight
        began_ns = self._early_ns if self._is_known else None
        if reading.period_count == last.period_count + 1 and elapsed_ns < reading.period_ns:
            self._bracket(last.now_ns - SLACK_NS, reading.now_ns, reading.period_ns)
        if self._is_known:
            self._move_on(reading.now_ns, reading.period_ns)
        if began_ns is None or self._early_ns - began_ns > reading.period_ns / 2:
            share = (reading.now_ns - self._early_ns) / elapsed_ns
            self._spent_ns = used_ns * min(1.0, share)
        else:
            self._spent_ns += used_ns
        self._note_throttling(reading, reading.throttled_ns - last.throttled_ns)

    def lose_period(self) -> None:
        """Have the base compute until readings tell again when periods begin."""
        self._is_known = False

    def size(self, run_ns: int, base_ns: int, now_ns: int) -> int:
        """Choose the threads of a run that takes ``run_ns`` with all of them, 0 is not known.

        ``base_ns`` is how long it takes with the base.
        """
        last = self._last
        if last is None:
            return 1
        if not last.quota_ns:
            return self.most
        base = self._base(last.quota_ns / last.period_ns)
        if base >= self.most:
            return self.most
        has_team = self._is_worth_a_stop(last, run_ns, base_ns) or self._can_afford(
            last, base, run_ns, now_ns
        )
        return self.most if has_team else base

    def _is_worth_a_stop(self, last: QuotaReading, run_ns: int, base_ns: int) -> bool:
        """Return whether the team is done sooner even if it stands still as often as it may."""
        lasts_ns = last.quota_ns / (self.most + self._others)
        stop_ns = max(0.0, last.period_ns - lasts_ns)
        stop_count = 1 + math.floor(run_ns / lasts_ns)
        return run_ns > 0 and run_ns + stop_count * stop_ns <= base_ns

    def _base(self, quota: float) -> int:
        """Return how many threads the quota lasts for, whatever part of the period is left."""
        others = self._others if self._others >= OTHERS_LEAST else 0.0
        return max(1, min(self.most, math.floor(quota - others)))

    def _can_afford(self, last: QuotaReading, base: int, run_ns: int, now_ns: int) -> bool:
        if not self._is_known or now_ns < self._resume_ns:
            return False
        period_ns, quota_ns = last.period_ns, last.quota_ns * (1 - MARGIN_SHARE)
        ahead_ns = (now_ns - self._early_ns) // period_ns * period_ns
        early_ns, late_ns = self._early_ns + ahead_ns, self._late_ns + ahead_ns
        if now_ns < late_ns:  # in doubt
            return False
        spent_ns = 0.0 if ahead_ns else self._spent_ns
        left_ns = late_ns + period_ns - now_ns
        over_ns = max(0, now_ns + run_ns - (early_ns + period_ns))  # in the next period
        if over_ns > period_ns:
            return False
        return spent_ns + self._needed_ns(base, run_ns, left_ns) <= quota_ns and (
            not over_ns or self._needed_ns(base, over_ns, period_ns) <= quota_ns
        )

    def _needed_ns(self, base: int, run_ns: int, left_ns: int) -> float:
        """Return what a run, the base behind it and the others use until a period has ended."""
        of_team = min(run_ns, left_ns)
        return self.most * of_team + base * (left_ns - of_team) + self._others * left_ns

    def _bracket(self, early_ns: int, late_ns: int, period_ns: int) -> None:
        """Cut what is in doubt by one more bracket; start anew where they do not meet."""
        if self._is_known:
            centre_ns = (early_ns + late_ns - self._early_ns - self._late_ns) / 2
            moved_ns = round(centre_ns / period_ns) * period_ns
            cut_early_ns = max(early_ns, self._early_ns + moved_ns)
            cut_late_ns = min(late_ns, self._late_ns + moved_ns)
            if cut_early_ns < cut_late_ns:
                early_ns, late_ns = cut_early_ns, cut_late_ns
        self._early_ns, self._late_ns, self._is_known = early_ns, late_ns, True

    def _move_on(self, now_ns: int, period_ns: int) -> None:
        """Move the bracket on to the last begin that may have been by now."""
        ahead_ns = (now_ns - self._early_ns) // period_ns * period_ns
        self._early_ns += ahead_ns
        self._late_ns += ahead_ns

    def _note_throttling(self, reading: QuotaReading, throttled_ns: int) -> None:
        if throttled_ns < HURT_SHARE * reading.period_ns:
            return
        calm_ns = CALM_PERIODS * reading.period_ns
        is_relapse = self._hurt_ns is not None and reading.now_ns - self._resume_ns < calm_ns
        self._pause_count = min(2 * self._pause_count, LONGEST_PAUSE) if is_relapse else 1
        self._hurt_ns = reading.now_ns
        self._resume_ns = reading.now_ns + self._pause_count * reading.period_ns

    def __repr__(self) -> str:
        doubt_ms = (self._late_ns - self._early_ns) / 1e6 if self._is_known else math.inf
        return f"<QuotaBudget of {self.most} threads, {doubt_ms:.1f} ms in doubt>"
