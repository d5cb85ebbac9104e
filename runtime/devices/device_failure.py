"""What a failure says of the device that it came from. Pure."""

from __future__ import annotations

from enum import Enum

from ...errors import DeviceError, NotSupportedError

__all__ = ["Verdict", "verdict_on"]


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
