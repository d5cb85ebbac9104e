"""When the device ran each launch of a run, for PERF_COUNT."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

from ...runtime.bindings import NodeProfile
from .driver import DriverError, Event
from .plan import Plan

__all__ = ["LaunchTimes"]


class LaunchTimes:
    """The events of a run's launches, read once the run has ended."""

    def __init__(self, plan: Plan, events: Sequence[Event]) -> None:
        self._plan, self._events = plan, events

    def profiles(self) -> list[NodeProfile]:
        """List the launches in order; nothing if one of them failed.

        The device's clock is moved so that the last launch has ended now.
        """
        try:
            times = [event.times_ns for event in self._events]
        except DriverError:
            return []
        shift = perf_counter_ns() - max((end for _, end in times), default=0)
        pairs = zip(self._plan.launches, times, strict=True)
        return [
            NodeProfile(
                launch.origin.name,
                launch.origin.op,
                launch.origin.original_nodes,
                start + shift,
                end + shift,
                implementation=launch.source.label,
            )
            for launch, (start, end) in pairs
        ]
