"""How many launches go to the device at once, so that a run that is stopped leaves it soon.

What is enqueued runs to its end. So a plan whose launches take long is enqueued in portions, the
next one when the device has done with the one before; one that is quick goes at once, as the host
takes a moment between portions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns as now_ns
from typing import Generic, TypeVar

__all__ = ["FIRST_COUNT", "PORTION_NS", "Portions", "next_count", "now_ns"]

FIRST_COUNT = 8
"""Launches that go together while it is not known how long they take."""

PORTION_NS = 100_000_000
"""What a portion is to take at most; the host takes a thousandth of that between two."""

_MOST_TIMES = 4
"""Of the launches of a portion in the next one."""

L = TypeVar("L")


def next_count(count: int, took_ns: int) -> int:
    """Return how many launches go together after ``count`` that took this long. Pure."""
    wanted = count * PORTION_NS // max(took_ns, 1)
    return max(1, min(wanted, count * _MOST_TIMES))


@dataclass(eq=False, slots=True)
class Portions(Generic[L]):
    """The launches of a run that are not enqueued yet, and the time of the last that are."""

    left: Sequence[L]
    count: int = 0
    """How many launches the last portion had."""
    enqueued_ns: int = 0
    """When it was enqueued, by this module's clock."""
