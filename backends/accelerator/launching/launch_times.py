"""When the device ran each launch of a run, for PERF_COUNT."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.runs.bindings import NodeProfile
from ..plan import Launch
from ..queues.driver import DriverError, Event
from ..queues.submission import StageWork

__all__ = ["LaunchTimes"]


class LaunchTimes:
    """The events of a run's launches, read once the run has ended; ``work`` are all of them."""

    def __init__(
        self, launches: Sequence[Launch], events: Sequence[Event], work: StageWork | None
    ) -> None:
        self._launches, self._events, self._work = launches, events, work

    def profiles(self) -> list[NodeProfile]:
        """List the launches in order; nothing if one of them failed, or the device has no times.

        They lie within the span of the stage, in ``perf_counter_ns`` like it.
        """
        work = self._work
        if work is None or work.times is None:
            return []
        try:
            times = [event.times_ns for event in self._events]
        except DriverError:
            return []
        pairs = zip(self._launches, times, strict=True)
        return [
            NodeProfile(
                launch.origin.name,
                launch.origin.op,
                launch.origin.original_nodes,
                work.host_ns(start),
                work.host_ns(end),
                implementation=launch.source.label,
            )
            for launch, (start, end) in pairs
        ]
