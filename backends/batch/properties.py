"""The properties of BATCH."""

from __future__ import annotations

from ...runtime.properties.properties import Property, parse_integer

__all__ = ["AUTO_BATCH_TIMEOUT"]

AUTO_BATCH_TIMEOUT = Property(
    "AUTO_BATCH_TIMEOUT",
    parse_integer(0),
    0,
    "How many milliseconds a run that is not full may wait for more requests although the device "
    "is idle; 0: requests share a run only if they come while the device is busy.",
)
