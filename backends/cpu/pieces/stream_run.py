"""What a run on a stream hands to everything inside it."""

from __future__ import annotations

from dataclasses import dataclass

from ....executors import Lane
from ....runtime.interpretation.control_flow import Run
from ....runtime.runs.bindings import NodeProfile
from ....runtime.runs.stage import NO_STOP, Stop

__all__ = ["NotOnThisLane", "StreamRun"]


class NotOnThisLane(BaseException):
    """What a run on the lane for callers raises where it would wait, or wants a team.

    No Exception, which what runs nodes would take for an error of the node. Nothing has been done
    that a run from the beginning does not do again. Runs of shapes that want a team always do.
    """

    def __init__(self, *, wants_team: bool) -> None:
        self.wants_team = wants_team


@dataclass(frozen=True, slots=True)
class StreamRun(Run):
    """A run on a stream, and where it notes the times of the main graph's planned nodes."""

    owner: Stop = NO_STOP
    lane: Lane | None = None
    times: list[NodeProfile] | None = None
    may_wait: bool = True
    """False on the lane for callers."""
