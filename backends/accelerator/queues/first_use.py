"""Which process has used a driver first: its forked children must not call it."""

from __future__ import annotations

from ....errors import DeviceError
from ....executors import ProcessMark

__all__ = ["FirstUse"]


class FirstUse:
    """The first use of a driver by this process.

    A driver's threads are gone in a forked child, and calls wait for them for ever, inside of it.
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self.mark: ProcessMark | None = None

    def note(self) -> None:
        """Note a use; raises DeviceError in a child that was forked after the first one."""
        if self.mark is None:
            self.mark = ProcessMark()
        if not self.mark.is_current:
            raise DeviceError(
                f"{self._driver} was used before fork, and its drivers do not work in the child; "
                f"use the start method 'spawn', or load and list devices in children only"
            )
