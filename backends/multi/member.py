"""Member: one device of MULTI."""

from __future__ import annotations

from ...executors import TimerHandle
from ...runtime.network.executable_network import ExecutableNetwork
from .balance import DeviceLoad
from .health import Health

__all__ = ["Member"]


class Member(DeviceLoad):
    """One device of MULTI, the network on it, and how it does."""

    def __init__(self, device: str, network: ExecutableNetwork, place_count: int | None) -> None:
        super().__init__(device, place_count or network.optimal_request_count)
        self.network = network
        self.health = Health()
        self.moved_count = 0
        """How many runs went on to another device when they had failed here."""
        self.alarm: TimerHandle | None = None
        self.is_tried = False
        """It has a run that is to show whether it works again."""
