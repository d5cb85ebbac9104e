"""How much memory the process has, looked at after a number of runs."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

STATM = Path("/proc/self/statm")


class Memory:
    """What was noted, by the share of runs that had settled. Any thread may note."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def note(self, share: float) -> None:
        pages = int(STATM.read_text(encoding="ascii").split()[1])
        self._samples.append((share, pages * os.sysconf("SC_PAGE_SIZE")))

    def between(self, first: float, last: float) -> float:
        """The median over this part of the test."""
        return median(size for share, size in self._samples if first <= share <= last)
