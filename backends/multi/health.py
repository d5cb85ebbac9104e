"""When a device that has failed is tried again. Pure."""

from __future__ import annotations

__all__ = ["LONGEST_S", "Health"]

SHORTEST_S = 0.1
LONGEST_S = 30.0
"""How soon a device is tried again that has failed, at first and at last."""


class Health:
    """How a device does: each time that it fails, it is tried again after twice as long.

    ``why`` tells how it has failed last, as text: an error would hold the frames that it came from.
    """

    def __init__(self) -> None:
        self.failure_count = 0
        self.why = ""
        self._in_a_row = 0

    def failed(self, error: BaseException) -> float:
        """Note a failure, and return in how many seconds the device is to be tried."""
        self.failure_count += 1
        self.why = str(error) or repr(error)
        self._in_a_row += 1
        return float(min(LONGEST_S, SHORTEST_S * 2.0 ** min(self._in_a_row - 1, 30)))

    def served(self) -> None:
        """Note that it has run a request well, which it was given since it failed."""
        self._in_a_row = 0
