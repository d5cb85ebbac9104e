"""The properties of MULTI."""

from __future__ import annotations

from ...runtime.properties.properties import Property, parse_choice

__all__ = ["DEVICE_PRIORITY", "EARLIEST_END", "ROUND_ROBIN", "SCHEDULE_POLICY"]

EARLIEST_END, DEVICE_PRIORITY, ROUND_ROBIN = "EARLIEST_END", "DEVICE_PRIORITY", "ROUND_ROBIN"

SCHEDULE_POLICY = Property(
    "SCHEDULE_POLICY",
    parse_choice(EARLIEST_END, DEVICE_PRIORITY, ROUND_ROBIN),
    EARLIEST_END,
    "Which device gets the next request: EARLIEST_END, the one that is expected to end it first, "
    "even if that is still busy; DEVICE_PRIORITY, the first of the list with room; ROUND_ROBIN, "
    "the next in turn with room.",
)
