"""Which lanes of a trace are a device's queues of one kind: it has several for launches. Pure."""

from __future__ import annotations

import re

__all__ = ["stage_of"]


def stage_of(lane: str, device: str, *, on_host: bool = False) -> str | None:
    """Name what a queue is for: "compute" of "CUDA.0 compute 3"; None for another lane.

    ``on_host``: the lane of the host's enqueueing, in place of the device's own.
    """
    behind = " host" if on_host else ""
    found = re.fullmatch(rf"{re.escape(device)} (upload|compute|download)(?: \d+)?{behind}", lane)
    return found and found[1]
