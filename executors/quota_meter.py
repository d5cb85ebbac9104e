"""What a container's CPU quota has been spent on so far, from the files of its control group.

The parsing is pure. Sources: "CFS Bandwidth Control" and "Control Group v2" in the Linux kernel's
documentation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from .cpu_allowance import QuotaGroup, group_at, own_group, read_text

__all__ = ["QuotaMeter", "QuotaReading", "parse_cpu_stat"]

LIMIT_NS = 1_000_000_000
"""How long a limit is taken to hold before it is read again."""


class QuotaReading(NamedTuple):
    """A group's account at one moment, in nanoseconds of CPU time but for ``now_ns``.

    ``period_count`` are the periods that have begun while the group had work. ``quota_ns`` of each
    ``period_ns`` may be used; 0 is no limit. ``throttled_ns`` is for how long CPUs were refused.
    """

    now_ns: int
    period_count: int
    used_ns: int
    throttled_ns: int
    quota_ns: int
    period_ns: int


class QuotaMeter:
    """Reads the account of the group that limits this process most; not thread-safe.

    A reading takes some 20 us. Where the system does not tell what a group has used, as v1 without
    ``cpuacct`` in the same place, what this process has used stands for it.
    """

    def __init__(
        self,
        group: QuotaGroup,
        read: Callable[[str], str | None] = read_text,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        process_clock: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self._group, self._read = group, read
        self._clock, self._process_clock = clock, process_clock
        self._stat, self._usage = f"{group.folder}/cpu.stat", f"{group.folder}/cpuacct.usage"
        self._has_usage = not group.is_v2 and _number(read(self._usage)) is not None
        self._quota_ns, self._period_ns = group.quota_ns, group.period_ns
        self._limit_ns = clock()

    @classmethod
    def open(cls) -> QuotaMeter | None:
        """Find the process's own; None without a quota, and where the system hides its account."""
        group = own_group()
        if group is None or group.cpus >= (os.cpu_count() or 1):
            return None
        made = cls(group)
        return None if made.reading() is None else made

    def reading(self) -> QuotaReading | None:
        """Read the account; None if it cannot be read any more."""
        stat = parse_cpu_stat(self._read(self._stat) or "")
        if stat is None:
            return None
        periods, throttled_ns, used_ns = stat
        if self._has_usage:
            used_ns = _number(self._read(self._usage))
        if used_ns is None:
            used_ns = self._process_clock()
        now_ns = self._clock()
        if now_ns - self._limit_ns >= LIMIT_NS:
            self._read_limit(now_ns)
        return QuotaReading(now_ns, periods, used_ns, throttled_ns, self._quota_ns, self._period_ns)

    def _read_limit(self, now_ns: int) -> None:
        group = group_at(self._group.folder, self._group.is_v2, self._read)
        self._quota_ns = 0 if group is None else group.quota_ns
        self._period_ns = self._group.period_ns if group is None else group.period_ns
        self._limit_ns = now_ns


def parse_cpu_stat(text: str) -> tuple[int, int, int | None] | None:
    """Return periods, throttled and used nanoseconds of a group's ``cpu.stat``, v1 or v2.

    None where it does not count periods; the used time is None in v1, which has it elsewhere.
    """
    known = dict(line.partition(" ")[::2] for line in text.splitlines())
    periods = _number(known.get("nr_periods"))
    throttled_ns = _number(known.get("throttled_time"))
    throttled_us = _number(known.get("throttled_usec"))
    used_us = _number(known.get("usage_usec"))
    if throttled_us is not None:
        throttled_ns = throttled_us * 1000
    if periods is None or throttled_ns is None:
        return None
    return periods, throttled_ns, None if used_us is None else used_us * 1000


def _number(text: str | None) -> int | None:
    text = "" if text is None else text.strip()
    return int(text) if text.isascii() and text.isdigit() else None
