"""Durations counted in buckets on a logarithmic scale: percentiles of any number of them.

A double's exponent and the first three bits of its fraction number the bucket, so each power of two
is cut into eight, and numpy sorts a thousand durations at once. A bucket gives a duration to within
6 %, from a nanosecond to centuries; count, sum and maximum are exact.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ...executors.cached_property import cached_property

__all__ = ["COUNT_AT", "NO_DURATIONS", "DurationCounts", "Durations"]

COUNT_AT = 1024
"""How many are kept until numpy counts them: a fifth of a millisecond's work, 150 KB of spans."""

FRACTION_BITS = 3
SUB_BUCKETS = 1 << FRACTION_BITS
_SHIFT = 52 - FRACTION_BITS
_ONE_NS = 1023 << FRACTION_BITS  # where the buckets of one nanosecond begin
_BUCKET_COUNT = 64 * SUB_BUCKETS + 1
TYPICAL = 16 / 17
"""Of a bucket's upper end; 1/17 off at either end of the widest bucket, which begins at 8/9."""


@dataclass(frozen=True)
class Durations:
    """How long something took, each time it happened; seconds.

    ``count``, ``sum_s`` and ``max_s`` are exact. ``buckets`` are pairs (upper end, how many), in
    rising order and without the empty ones; the upper ends are the same in every process.
    Percentiles are read from them and are off by 6 % at most.
    """

    count: int = 0
    sum_s: float = 0.0
    max_s: float = 0.0
    buckets: tuple[tuple[float, int], ...] = ()

    @property
    def mean_s(self) -> float:
        """The mean; 0 if there are none."""
        return self.sum_s / self.count if self.count else 0.0

    @property
    def p50_s(self) -> float:
        """The median."""
        return self.percentile_s(50)

    @property
    def p90_s(self) -> float:
        """What nine of ten do not exceed."""
        return self.percentile_s(90)

    @property
    def p99_s(self) -> float:
        """What 99 of 100 do not exceed."""
        return self.percentile_s(99)

    def percentile_s(self, number: float) -> float:
        """Return what ``number`` percent, 0 to 100, do not exceed; 0 if there are none."""
        if not self.count:
            return 0.0
        rank = max(1, math.ceil(self.count * number / 100))
        if rank >= self.count:
            return self.max_s
        place = bisect_right(self._cumulated, rank - 1)
        return min(TYPICAL * self.buckets[place][0], self.max_s)

    def count_within(self, limit_s: float) -> int:
        """Count those in buckets that end at or below this: for exporters with bounds of their own.

        It never falls as the limit rises, and is the whole count at infinity.
        """
        place = bisect_right(self.buckets, (limit_s, math.inf))
        return self._cumulated[place - 1] if place else 0

    def since(self, earlier: Durations) -> Durations:
        """Return those that came after an earlier picture of the same thing.

        The maximum is then known by its bucket only.
        """
        before = dict(earlier.buckets)
        grown = [(upper_s, count - before.get(upper_s, 0)) for upper_s, count in self.buckets]
        buckets = tuple([(upper_s, count) for upper_s, count in grown if count > 0])
        return Durations(
            count=self.count - earlier.count,
            sum_s=max(0.0, self.sum_s - earlier.sum_s),
            max_s=min(buckets[-1][0], self.max_s) if buckets else 0.0,
            buckets=buckets,
        )

    @cached_property
    def _cumulated(self) -> Sequence[int]:
        return list(accumulate(count for _, count in self.buckets))


NO_DURATIONS = Durations()


class DurationCounts:
    """Counts durations as they come. Not thread-safe.

    ``uncounted`` takes single ones, in nanoseconds; ``note`` keeps it short, and so does a caller
    that appends to it.
    """

    __slots__ = ("_counts", "count", "max_ns", "sum_ns", "uncounted")

    def __init__(self) -> None:
        self._counts: np.ndarray | None = None
        """By bucket; made when it is wanted, for many networks are loaded and few of them asked."""
        self.count = self.sum_ns = self.max_ns = 0
        self.uncounted: list[int] = []

    def add(self, durations_ns: np.ndarray) -> None:
        """Count these; at least one, int64, none below 0."""
        if self._counts is None:
            self._counts = np.zeros(_BUCKET_COUNT, np.int64)
        self.count += len(durations_ns)
        self.sum_ns += int(durations_ns.sum())
        self.max_ns = max(self.max_ns, int(durations_ns.max()))
        places = bucket_of(durations_ns)
        added = np.bincount(places)
        self._counts[: len(added)] += added

    def note(self, duration_ns: int) -> None:
        """Count one, at the latest when COUNT_AT have come or a picture is asked for."""
        self.uncounted.append(duration_ns)
        if len(self.uncounted) >= COUNT_AT:
            self.count_kept()

    def count_kept(self) -> None:
        """Count what is in ``uncounted``, which is empty then."""
        if self.uncounted:
            self.add(np.maximum(np.array(self.uncounted, np.int64), 0))
            self.uncounted.clear()

    def picture(self, zero_count: int = 0) -> Durations:
        """Return what was counted so far, and a number of no length."""
        self.count_kept()
        if self._counts is None and not zero_count:
            return NO_DURATIONS
        counts = np.zeros(1, np.int64) if self._counts is None else self._counts.copy()
        counts[0] += zero_count
        places = np.flatnonzero(counts)
        return Durations(
            self.count + zero_count,
            self.sum_ns / 1e9,
            self.max_ns / 1e9,
            tuple([(upper_end_s(int(place)), int(counts[place])) for place in places]),
        )


def bucket_of(durations_ns: np.ndarray) -> np.ndarray:
    """Number the bucket of each duration; bucket 0 is that of 0 ns alone."""
    places = (durations_ns.astype(np.float64).view(np.int64) >> _SHIFT) - (_ONE_NS - 1)
    clipped: np.ndarray = np.maximum(places, 0, out=places)
    return clipped


def upper_end_s(place: int) -> float:
    """Return where a bucket ends, in seconds; what is as long belongs to the next one."""
    exponent, eighth = divmod(place, SUB_BUCKETS)
    return math.ldexp(1 + eighth / SUB_BUCKETS, exponent) / 1e9 if place else 0.0
