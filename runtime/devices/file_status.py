"""What the system says of a model's file, to tell whether it has been written to since."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["FileStatus", "file_status"]


class FileStatus(NamedTuple):
    """What the system says of a file, and when it said so."""

    found: os.stat_result
    asked_ns: int

    @property
    def mark(self) -> list[int]:
        """What changes with the file's content."""
        found = self.found
        return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]

    @property
    def unchanged_ns(self) -> int:
        """How long the file had not been written to."""
        return self.asked_ns - max(self.found.st_mtime_ns, self.found.st_ctime_ns)


def file_status(path: Path | None) -> FileStatus | None:
    """Ask the system for a file, before it is read; None where there is none."""
    asked_ns = time.time_ns()
    try:
        return None if path is None else FileStatus(os.stat(path), asked_ns)
    except (OSError, ValueError):
        return None
