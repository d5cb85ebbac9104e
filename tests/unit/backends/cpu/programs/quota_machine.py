"""A group under a CPU quota in virtual time, which makes it stand still."""

from __future__ import annotations

from aioinfer.executors import QuotaReading

MS = 1_000_000


class QuotaMachine:
    """Runs threads one after the other; all that they use is on one account.

    Periods begin at ``phase_ns`` after the clock's start and whole numbers of periods later.
    ``others`` is how many CPUs somebody else in the group keeps busy, all the time.
    """

    def __init__(
        self, quota: float, *, period_ns: int = 100 * MS, phase_ns: int = 0, others: float = 0.0
    ) -> None:
        self.quota_ns, self.period_ns = round(quota * period_ns), period_ns
        self.phase_ns, self.others = phase_ns % period_ns, others
        self.now_ns = 1_000 * period_ns
        self.used_ns = self.throttled_ns = 0
        self.throttle_count = 0
        self.period_count = 7
        self._left_ns = float(self.quota_ns)

    def reading(self) -> QuotaReading:
        return QuotaReading(
            self.now_ns,
            self.period_count,
            self.used_ns,
            self.throttled_ns,
            self.quota_ns,
            self.period_ns,
        )

    def run(self, thread_count: int, work_ns: int) -> int:
        """Have threads compute for ``work_ns`` each; return how long it took."""
        began_ns, rate = self.now_ns, thread_count + self.others
        while work_ns > 0:
            step_ns = min(work_ns, self._to_next_period(), max(1, int(self._left_ns / rate)))
            if self._left_ns < rate:
                self.throttle_count += 1
                self.throttled_ns += self._to_next_period()
                self._go(self._to_next_period(), 0.0)
                continue
            work_ns -= step_ns
            self._go(step_ns, rate)
        return self.now_ns - began_ns

    def rest(self, rest_ns: int) -> None:
        """Have only the others compute."""
        until_ns = self.now_ns + rest_ns
        while self.now_ns < until_ns:
            self._go(min(until_ns - self.now_ns, self._to_next_period()), self.others)

    def _to_next_period(self) -> int:
        return self.period_ns - (self.now_ns - self.phase_ns) % self.period_ns

    def _go(self, step_ns: int, rate: float) -> None:
        is_over = step_ns == self._to_next_period()
        self.now_ns += step_ns
        used_ns = min(step_ns * rate, self._left_ns) if rate else 0.0
        self.used_ns += round(used_ns)
        self._left_ns -= used_ns
        if is_over:
            self._left_ns = float(self.quota_ns)
            self.period_count += 1
