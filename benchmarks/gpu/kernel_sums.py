"""Sums over what a profiler has told of a device: how long it was busy, idle, and with what. Pure.

An event has a name, when it began (``ts``) and how long it took (``dur``), in us; events lie in the
order of their beginnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["LONGEST_GAP_US", "Event", "busy_us", "by_kernel", "gaps_us"]

LONGEST_GAP_US = 30.0
"""Longer ones are between runs."""

Event = Mapping[str, Any]


def busy_us(events: Sequence[Event]) -> float:
    """Sum up the time in which there is at least one."""
    busy, until = 0.0, 0.0
    for event in events:
        ended = event["ts"] + event["dur"]
        busy += max(0.0, ended - max(event["ts"], until))
        until = max(until, ended)
    return busy


def gaps_us(events: Sequence[Event]) -> float:
    """Sum up the time between them within runs."""
    gaps, until = 0.0, 0.0
    for event in events:
        gap = event["ts"] - until
        gaps += gap if until and 0.0 < gap < LONGEST_GAP_US else 0.0
        until = max(until, event["ts"] + event["dur"])
    return gaps


def by_kernel(events: Sequence[Event]) -> list[tuple[str, tuple[int, float]]]:
    """Give how often and how long each was, the longest first."""
    counts = Counter(event["name"] for event in events)
    times: Counter[str] = Counter()
    for event in events:
        times[event["name"]] += event["dur"]
    return [(name, (counts[name], taken)) for name, taken in times.most_common()]
