"""The properties of BATCH."""

from __future__ import annotations

from ...runtime.properties.properties import Property, parse_boolean, parse_integer

__all__ = ["ALLOW_UNBATCHED", "AUTO_BATCH_TIMEOUT"]

AUTO_BATCH_TIMEOUT = Property(
    "AUTO_BATCH_TIMEOUT",
    parse_integer(0),
    0,
    "How many milliseconds a run that is not full may wait for more requests although the device "
    "is idle; 0: requests share a run only if they come while the device is busy.",
)
ALLOW_UNBATCHED = Property(
    "ALLOW_UNBATCHED",
    parse_boolean,
    False,
    "Whether a model whose requests cannot share runs is loaded on the device itself, where they "
    "run one by one, instead of refused; explain() and the metric BATCHING_REFUSAL say why.",
)
