"""What a policy expects, as a blob holds it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .balance import Balance, StageCost
from .branches import Branches
from .policy import Expected
from .priority_costs import PriorityCosts

__all__ = ["expected_record", "read_expected"]


def expected_record(expected: Expected | None) -> dict[str, Any] | None:
    """Return it as JSON holds it."""
    if expected is None:
        return None
    return {
        "policy": expected.policy,
        "outcome": asdict(expected.outcome),
        "measured_devices": list(expected.measured_devices),
    }


def read_expected(content: Any) -> Expected | None:
    """Read it; raises KeyError, TypeError or ValueError for what is none."""
    if content is None:
        return None
    said = content["outcome"]
    if "latency_s" in said:
        costs = (float(said[key]) for key in ("seconds", "carry_s", "latency_s"))
        return Expected(str(content["policy"]), PriorityCosts(*costs), ())
    affinity = tuple(str(device) for device in said["affinity"])
    loads = {str(device): float(seconds) for device, seconds in said["loads_s"].items()}
    outcome: Balance | Branches
    if "stages" in said:
        stages = tuple(
            StageCost(
                str(stage["device"]),
                int(stage["node_count"]),
                float(stage["seconds"]),
                float(stage["carry_s"]),
                int(stage["weight_bytes"]),
                int(stage["detour_count"]),
            )
            for stage in said["stages"]
        )
        outcome = Balance(affinity, stages, loads)
    else:
        alone_s = None if said["alone_s"] is None else float(said["alone_s"])
        outcome = Branches(affinity, float(said["seconds"]), alone_s, loads)
    measured = tuple(str(device) for device in content["measured_devices"])
    return Expected(str(content["policy"]), outcome, measured)
