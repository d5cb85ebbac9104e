"""What devices answered about a model, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import NotSupportedError
from ...runtime.passes import SupportMap
from .choose import DEFAULT_ORDER

__all__ = ["Choice", "listed", "refused_nodes"]

LISTED_NODES = 3
"""How many refused nodes of one device an error names."""


@dataclass
class Choice:
    """The devices' answers by device, in order, and why those that were tried did not take it."""

    where: str
    answers: dict[str, SupportMap] = field(default_factory=dict)
    takes: dict[str, bool] = field(default_factory=dict)
    """Whether each device that was asked is there and takes every node."""
    refusals: list[str] = field(default_factory=list)
    installs: dict[str, str] = field(default_factory=dict)
    """Devices that are only not installed, and the commands that install them."""
    weighed: str = ""
    """Why the model is not cut, with what is expected of both ways."""

    def error(self, way_out: str) -> NotSupportedError:
        reasons = ". ".join(self.refusals) or f"none of {list(DEFAULT_ORDER)} is installed"
        advice = way_out[:1].upper() + way_out[1:]
        return NotSupportedError(f"{self.where}: no device runs every node. {reasons}. {advice}")


def refused_nodes(answers: SupportMap) -> dict[str, str]:
    """Return the reason for each node that is refused."""
    return {name: answer.reason for name, answer in answers.items() if not answer.supported}


def listed(refused: dict[str, str]) -> str:
    """Name the first nodes with their reasons, and how many more there are."""

    def texts() -> Iterable[str]:
        for name in list(refused)[:LISTED_NODES]:
            yield f"{name!r} ({refused[name]})"
        if len(refused) > LISTED_NODES:
            yield f"{len(refused) - LISTED_NODES} more nodes"

    return ", ".join(texts())
