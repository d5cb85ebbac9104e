"""How long a device takes for what a node costs, and for what is brought to it."""

from __future__ import annotations

from dataclasses import dataclass

from .node_costs import NodeCost

__all__ = ["DeviceSpeed"]


@dataclass(frozen=True)
class DeviceSpeed:
    """``carried_bytes_per_s`` is between the device and the host, ``hop_s`` a hand-over."""

    flop_per_s: float
    bytes_per_s: float
    carried_bytes_per_s: float
    hop_s: float
    launch_s: float

    def node_s(self, cost: NodeCost) -> float:
        """Return what a node takes: its arithmetic or its memory, whichever is slower."""
        if not cost.flop and not cost.bytes:
            return 0.0
        return self.launch_s + max(cost.flop / self.flop_per_s, cost.bytes / self.bytes_per_s)

    def carry_s(self, size: int) -> float:
        """Return what it takes to bring this many bytes in or out."""
        return self.hop_s + size / self.carried_bytes_per_s
