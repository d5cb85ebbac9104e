"""How many of the allowed CPUs had nothing to do of late. The parsing is pure.

Source: proc_stat(5): the fourth number of a CPU's line is its idle time in ticks. A CPU that waits
for a disk, the fifth, is as free as an idle one; one that the hypervisor took, the eighth, is not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from .cpu_allowance import allowed_cpus

_IDLE_PLACES = (3, 4)


class CpuLoad:
    """Measures from look to look; not thread-safe.

    Looks that are less than a tick apart cannot tell much: leave 100 ms between them.
    """

    def __init__(self) -> None:
        self._cpus = frozenset(allowed_cpus().cpus)
        self._idle_s, self._at_s = self._read()

    def restart(self) -> None:
        """Measure from now on."""
        self._idle_s, self._at_s = self._read()

    def idle_cpus(self) -> float | None:
        """Return how many allowed CPUs idled since the last look; None if the system hides it."""
        before_s, started_s = self._idle_s, self._at_s
        self._idle_s, self._at_s = self._read()
        if before_s is None or self._idle_s is None or self._at_s <= started_s:
            return None
        idle = (self._idle_s - before_s) / (self._at_s - started_s)
        return min(max(0.0, idle), float(len(self._cpus)))

    def _read(self) -> tuple[float | None, float]:
        try:
            text = Path("/proc/stat").read_text(encoding="ascii")
            ticks_per_s = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return None, time.monotonic()
        ticks = idle_ticks(text, self._cpus)
        return None if ticks is None else ticks / ticks_per_s, time.monotonic()


def idle_ticks(text: str, cpus: Collection[int]) -> int | None:
    """Add up the idle time of some CPUs in the text of /proc/stat, in ticks since the start.

    None where a line of theirs is missing, and where they never had any time at all, as in
    sandboxes that make the file up.
    """
    found, total, idle = 0, 0, 0
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break
        name, *columns = line.split()
        if name == "cpu" or not name[3:].isdigit() or int(name[3:]) not in cpus:
            continue
        if len(columns) <= max(_IDLE_PLACES) or not all(column.isdigit() for column in columns):
            return None
        found += 1
        total += sum(map(int, columns))
        idle += sum(int(columns[place]) for place in _IDLE_PLACES)
    return idle if found == len(cpus) and total else None
