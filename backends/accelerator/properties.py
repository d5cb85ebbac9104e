"""Properties that accelerators have beyond the standard ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...runtime.properties.properties import Property
from ...runtime.properties.property_parsers import parse_integer

__all__ = ["BATCH_BUCKETS", "BUCKETS_TO_256", "parse_buckets"]

BUCKETS_TO_256 = tuple(2**power for power in range(9))
"""1, 2, 4, ..., 256."""

_parse_size = parse_integer(1)


def parse_buckets(given: Any) -> tuple[int, ...]:
    """Take ascending numbers of rows, in a sequence or a text with commas; none switch it off."""
    wanted = "ascending batch sizes from 1 on, as in '1,2,4,8', or '' for none are wanted"
    if isinstance(given, str):
        given = given.split(",") if given.strip() else ()
    if not isinstance(given, list | tuple):
        raise ValueError(wanted)
    try:
        sizes = tuple(_parse_size(item) for item in given)
    except ValueError as error:
        raise ValueError(wanted) from error
    if any(one >= other for one, other in pairwise(sizes)):
        raise ValueError(wanted)
    return sizes


BATCH_BUCKETS: Property[tuple[int, ...]] = Property(
    "BATCH_BUCKETS",
    parse_buckets,
    (),
    "Batch sizes that a network with an open first dimension has plans for, such as '1,2,4,8': "
    "other batches are padded up to the next one, where rows keep apart, and above the last one "
    "have plans of their own; '': all have.",
)
