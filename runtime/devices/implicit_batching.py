"""Whether a network is loaded on BATCH though its user has named the device alone. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..properties.properties import (
    ALLOW_AUTO_BATCHING,
    PERFORMANCE_HINT,
    PERFORMANCE_HINT_NUM_REQUESTS,
    Configuration,
)

__all__ = ["BATCH", "implicit_batch", "is_asked_for"]

BATCH = "BATCH"
MOST_ROWS = 32
FEWEST_REQUESTS = 3
"""With fewer in flight there is hardly ever one to join."""


def is_asked_for(config: Configuration) -> bool:
    """Return whether these properties allow it at all; HETERO asks for each of its subgraphs."""
    return bool(
        config.value_or_default(ALLOW_AUTO_BATCHING)
        and config.value_or_default(PERFORMANCE_HINT) == "THROUGHPUT"
    )


def implicit_batch(
    device: str, config: Configuration, is_of_batch: Callable[[str], bool]
) -> tuple[str, dict[str, Any]] | None:
    """Return the device string of BATCH around a device, and its properties; None: not wanted.

    What ``is_of_batch`` is false for goes to the device inside. A model that BATCH refuses is to be
    loaded on the device itself.
    """
    if not is_asked_for(config):
        return None
    request_count = config.value_or_default(PERFORMANCE_HINT_NUM_REQUESTS)
    if 0 < request_count < FEWEST_REQUESTS:
        return None
    most_rows = min(MOST_ROWS, request_count or MOST_ROWS)
    given = {key: config[key] for key in config.given if key != ALLOW_AUTO_BATCHING.key}
    values = {key: value for key, value in given.items() if is_of_batch(key)}
    inside = {key: value for key, value in given.items() if not is_of_batch(key)}
    inside.pop("DEVICE_ID", None)  # it is in the name
    return f"{BATCH}:{device}({most_rows})", {
        **values,
        "ALLOW_UNBATCHED": True,
        "DEVICE_PROPERTIES": {device: inside},
    }
