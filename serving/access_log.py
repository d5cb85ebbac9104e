"""The access log: one JSON line for each request, when it has been answered."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["AccessLog"]

_LONGEST = 500  # characters of what a client has written

_log = logging.getLogger("aioinfer.serving")


class AccessLog:
    """Writes lines; one that cannot be written is lost, and the first of them is logged.

    write: takes a line with its end. Used on one event loop, which waits for it.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._wall_clock, self.clock = write, wall_clock, clock
        self._has_failed = False

    def tell(self, begun_s: float, **facts: str | int | float) -> None:
        """Write one request's line. begun_s: when it came, on ``clock``; texts are shortened."""
        now = datetime.fromtimestamp(self._wall_clock(), UTC)
        told: dict[str, object] = {
            "time": now.isoformat(timespec="milliseconds"),
            "duration_ms": round((self.clock() - begun_s) * 1000, 3),
        }
        for name, fact in facts.items():
            told[name] = fact[:_LONGEST] if isinstance(fact, str) else fact
        try:
            self._write(json.dumps(told, separators=(",", ":")) + "\n")
        except (OSError, ValueError) as error:  # a full disk, a closed file
            if not self._has_failed:
                _log.error("the access log cannot be written", exc_info=error)
            self._has_failed = True
