"""What a failure says of the device that it came from. Pure."""

from __future__ import annotations

from enum import Enum

from ...errors import DeviceError, NotSupportedError

__all__ = ["LONGEST_S", "Health", "Verdict", "verdict_on"]

SHORTEST_S = 0.1
LONGEST_S = 30.0
"""How soon a device is tried again that has failed, at first and at last."""


class Verdict(Enum):
    """What becomes of a request whose run has failed, and of the device."""

    TELL = "the request is at fault: its caller gets the error, and the device goes on"
    ELSEWHERE = "the device cannot do this one: it runs elsewhere, and the device goes on"
    OUT = "the device is at fault: it is taken out, and the request runs elsewhere"


def verdict_on(error: BaseException) -> Verdict:
    """Judge a failure. What lacks memory, or a kernel for these shapes, may do with the next."""
    if isinstance(error, DeviceError):
        return Verdict.ELSEWHERE if error.resource else Verdict.OUT
    return Verdict.ELSEWHERE if isinstance(error, NotSupportedError) else Verdict.TELL


class Health:
    """When a device that has failed is tried again: each time it fails, twice as long after."""

    def __init__(self) -> None:
        self.failure_count = 0
        self.last_error: BaseException | None = None
        self._in_a_row = 0

    def failed(self, error: BaseException) -> float:
        """Note a failure, and return in how many seconds the device is to be tried."""
        self.failure_count += 1
        self.last_error = error
        self._in_a_row += 1
        return float(min(LONGEST_S, SHORTEST_S * 2.0 ** min(self._in_a_row - 1, 30)))

    def served(self) -> None:
        """Note that it has run a request well."""
        self._in_a_row = 0
        self.last_error = None
