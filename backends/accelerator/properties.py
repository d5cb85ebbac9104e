"""Properties that accelerators have beyond the standard ones."""

from __future__ import annotations

from ...runtime.properties.properties import Property
from ...runtime.properties.property_parsers import parse_ascending

__all__ = ["BATCH_BUCKETS", "BUCKETS_TO_256"]

BUCKETS_TO_256 = tuple(2**power for power in range(9))
"""1, 2, 4, ..., 256."""

BATCH_BUCKETS: Property[tuple[int, ...]] = Property(
    "BATCH_BUCKETS",
    parse_ascending("batch sizes"),
    (),
    "Batch sizes that a network with an open first dimension has plans for, such as '1,2,4,8': "
    "other batches are padded up to the next one, where rows keep apart, and above the last one "
    "have plans of their own; '': all have.",
)
