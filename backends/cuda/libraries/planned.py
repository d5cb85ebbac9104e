"""What a library's plan does for a launch, whichever library it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Planned"]


class Planned(Protocol):
    """A library's plan for one operation on one device; it may be shared by launches."""

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue it on a CUDA stream of its device, which is the thread's current one.

        ``addresses`` are the operation's arguments on the device, in its order, workspace last.
        Any thread may call it; it waits for nothing on the device. Raises DriverError.
        """
