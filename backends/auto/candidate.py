"""Candidate: a device that AUTO may have a model served by."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...runtime.network.executable_network import ExecutableNetwork

__all__ = ["Candidate"]


@dataclass(eq=False)
class Candidate:
    """A device that takes the model, and what became of it."""

    device: str
    network: ExecutableNetwork | None = None
    error: BaseException | None = None
    """Why it is not used any more."""
    was_slower: bool = False
    time_s: float | None = None
    run_count: int = 0
    moved_count: int = 0
    failure_count: int = 0
    running: set[object] = field(default_factory=set)
    arriving: set[object] = field(default_factory=set)
    """One for each run that was given to it and not taken yet."""
