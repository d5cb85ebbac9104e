"""When a device did a stage's work: what is called with it, and the device's and host's clocks."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["DeviceClock", "TellTimes"]

TellTimes = Callable[[int, int, int], None]
"""Called with when the device could have begun, when it began, and when it ended; in
``perf_counter_ns``. On any thread, which may be the completion thread; never raises or blocks."""

_DRIFT = 10_000
"""Two clocks drift apart by less than one part in this many; where they do not, a reading that
contradicts the earlier ones wins."""


class DeviceClock:
    """How far a device's clock is from ``perf_counter_ns``, by readings of both. Thread-safe.

    A reading says that something happened at a time of the device's clock, and between two times of
    the host's. Each leaves a range for the distance between the clocks; what is true lies in all of
    them, so the many readings of a busy device are sharper together than the best one is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._least = self._most = self._read_ns = 0
        self._is_read = False

    def read(self, device_ns: int, earliest_ns: int, latest_ns: int) -> int:
        """Note a reading: the host's times lie around the moment of the device's.

        Returns what to add to times of the device's clock; off by at most half of what the readings
        leave open.
        """
        least, most = earliest_ns - device_ns, latest_ns - device_ns
        with self._lock:
            if self._is_read:
                drift = max(0, latest_ns - self._read_ns) // _DRIFT
                narrowed = max(least, self._least - drift), min(most, self._most + drift)
                if narrowed[0] <= narrowed[1]:
                    least, most = narrowed
            self._least, self._most, self._is_read = least, most, True
            self._read_ns = max(self._read_ns, latest_ns)
        return (least + most) // 2
