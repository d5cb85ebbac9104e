"""What a division by the order of the devices costs, beside one that weighs its cuts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PriorityCosts"]

MUCH = 2.0
"""How many times as long a run has to take before LATENCY is named: the numbers are rough."""


@dataclass(frozen=True)
class PriorityCosts:
    """``seconds`` of one run; hand-overs and bytes of what crosses take ``carry_s``, added up.

    ``latency_s``: a run under PARTITION_POLICY=LATENCY.
    """

    seconds: float
    carry_s: float
    latency_s: float

    @property
    def are_cuts_dear(self) -> bool:
        """True if LATENCY would end much sooner."""
        return self.latency_s * MUCH < self.seconds
