"""Sums over what a profiler has told of a device."""

from __future__ import annotations

from typing import Any

from gpu.kernel_sums import LONGEST_GAP_US, busy_us, by_kernel, gaps_us


def event(name: str, began_us: float, took_us: float) -> dict[str, Any]:
    return {"name": name, "ts": began_us, "dur": took_us}


EVENTS = [
    event("a", 10.0, 5.0),
    event("b", 12.0, 6.0),  # beside it
    event("a", 20.0, 1.0),
    event("b", 21.0 + LONGEST_GAP_US, 2.0),  # another run
]


def test_what_overlaps_is_counted_once() -> None:
    assert busy_us(EVENTS) == 8.0 + 1.0 + 2.0


def test_gaps_between_runs_are_none() -> None:
    assert gaps_us(EVENTS) == 2.0


def test_kernels_are_told_by_their_time() -> None:
    assert by_kernel(EVENTS) == [("b", (2, 8.0)), ("a", (2, 6.0))]
