"""What became of a request that a replica has not answered. Pure, and knows Ray's names only."""

from __future__ import annotations

from typing import Literal

__all__ = ["Failure", "failure_of"]

Failure = Literal["lost", "busy", "cancelled", "other"]

_LOST = frozenset(
    {
        "ActorDiedError",
        "ActorUnavailableError",
        "NodeDiedError",
        "RayActorError",
        "ReplicaUnavailableError",
        "WorkerCrashedError",
    }
)
_CANCELLED = frozenset({"RequestCancelledError", "TaskCancelledError"})


def failure_of(error: BaseException) -> Failure:
    """Return what an error of a handle means.

    "lost": the replica has ended, and it is not known how far it came; "busy": too many wait.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if "BackPressureError" in names:
        return "busy"
    if names & _CANCELLED:
        return "cancelled"
    return "lost" if names & _LOST else "other"
