"""The memory plan: where in one arena each buffer of a plan lies. Pure, shared by all devices.

Theory of operation. Steps are the kernels of a plan in the order in which they run. A buffer
holds data in a closed interval of steps, so what a step reads and what it writes never share
memory. Finding offsets for such blocks of memory is NP-hard, so several greedy orders are tried.
Each takes block after block and puts it into the tightest gap between the blocks that live at the
same time; the smallest arena wins, and none can be smaller than the peak. Where very many blocks
live at the same time, that would take too long: then they are placed once, as an allocator meets
them.
"""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...errors import GraphError
from ...executors.cached_property import cached_property
from .arena_holes import Holes

__all__ = ["ALIGN_BYTES", "ArenaPlan", "Lifetime", "Spans", "plan_arena"]

ALIGN_BYTES = 64  # a cache line, and the widest vector register of a CPU
CROWD_COUNT = 256  # with more neighbours in time, a walk past all blocks is cheaper than a list
MOST_STEPS = 1 << 20  # of walks past all blocks, in each order; beyond that a plan takes seconds


class Lifetime(NamedTuple):
    """How much memory a buffer takes, and in which steps it holds data, first and last included."""

    size_bytes: int
    first_step: int
    last_step: int


class ArenaPlan(NamedTuple):
    """Where in the arena each buffer lies; all numbers are bytes."""

    offsets: tuple[int, ...]
    """From the start of the arena, in the order of the lifetimes."""
    size_bytes: int
    """What the arena needs, if it starts at a multiple of the alignment."""
    peak_bytes: int
    """The most that lives in one step, sizes rounded up to the alignment: no plan needs less."""


def plan_arena(lifetimes: Sequence[Lifetime], align_bytes: int = ALIGN_BYTES) -> ArenaPlan:
    """Return an offset for every buffer so that no two that live at the same time overlap.

    It is what ``Spans.place`` returns. Raises GraphError for a lifetime that ends before it starts,
    a negative size, and a bad alignment.
    """
    spans = Spans([(lifetime.first_step, lifetime.last_step) for lifetime in lifetimes])
    return spans.place([lifetime.size_bytes for lifetime in lifetimes], align_bytes)


class Spans:
    """In which steps buffers hold data, first and last: all of a plan that no size changes.

    Immutable, so any thread may use it. Raises GraphError for a span that ends before it starts.
    """

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = tuple(spans)
        for index, (first, last) in enumerate(self._spans):
            if last < first:
                raise GraphError(
                    f"buffer {index} ends in step {last}, before it starts in step {first}; give "
                    f"the step that writes it first, the last that reads it last"
                )
        self._order = sorted(range(len(self._spans)), key=lambda index: self._spans[index][0])
        self._firsts = [self._spans[index][0] for index in self._order]
        self._lasts = [self._spans[index][1] for index in self._order]

    def place(self, sizes_bytes: Sequence[int], align_bytes: int = ALIGN_BYTES) -> ArenaPlan:
        """Return an offset for every buffer so that no two that live at the same time overlap.

        Sizes, in the order of the spans, and offsets are in bytes; offsets are multiples of
        align_bytes, a power of two. An empty buffer takes no memory. The same sizes give the same
        plan. O(n log n) for many buffers. Raises GraphError for a negative size, and a bad
        alignment.

        Source: "greedy by size" and "greedy by breadth" for offset calculation, Pisarchyk and Lee
        2020, arXiv:2001.03288.
        """
        if align_bytes < 1 or align_bytes & (align_bytes - 1):
            raise GraphError(f"align_bytes is {align_bytes}; give a power of two, such as 64")
        if not all(sizes_bytes):
            return self._place_but_empty(sizes_bytes, align_bytes)
        if min(sizes_bytes, default=0) < 0:
            index = next(index for index, size in enumerate(sizes_bytes) if size < 0)
            raise GraphError(f"buffer {index} has {sizes_bytes[index]} bytes; give 0 or more")
        sizes = [-(-sizes_bytes[index] // align_bytes) * align_bytes for index in self._order]
        if self._is_crowded:
            placed, size_bytes, peak_bytes = _allocate(sizes, self._firsts, self._lasts)
        else:
            peaks = self._peaks(sizes)
            peak_bytes = max(peaks, default=0)
            placed, size_bytes = self._best_order(sizes, peaks, peak_bytes)
        offsets = [0] * len(sizes)
        for index, offset in zip(self._order, placed, strict=True):
            offsets[index] = offset
        return ArenaPlan(tuple(offsets), size_bytes, peak_bytes)

    def _place_but_empty(self, sizes_bytes: Sequence[int], align_bytes: int) -> ArenaPlan:
        kept = [index for index, size in enumerate(sizes_bytes) if size]
        others = Spans([self._spans[index] for index in kept])
        arena = others.place([sizes_bytes[index] for index in kept], align_bytes)
        offsets = [0] * len(sizes_bytes)
        for index, offset in zip(kept, arena.offsets, strict=True):
            offsets[index] = offset
        return arena._replace(offsets=tuple(offsets))

    @cached_property
    def _windows(self) -> list[tuple[int, int]]:
        """Of each buffer, by start: from which to which one others start in one of its steps."""
        firsts = self._firsts
        return [
            (bisect_left(firsts, first), bisect_right(firsts, last))
            for first, last in zip(firsts, self._lasts, strict=True)
        ]

    @cached_property
    def _ended_counts(self) -> list[int]:
        """Of each buffer, by start: how many have ended when it starts."""
        ends = sorted(self._lasts)
        return [bisect_left(ends, first) for first in self._firsts]

    @cached_property
    def _by_end(self) -> list[int]:
        return sorted(range(len(self._lasts)), key=self._lasts.__getitem__)

    @cached_property
    def _is_crowded(self) -> bool:
        """True where to look at all that live at the same time would take too long."""
        if len(self._order) <= CROWD_COUNT:
            return False
        crowded = sum(
            until - ended - 1 > CROWD_COUNT
            for (_, until), ended in zip(self._windows, self._ended_counts, strict=True)
        )
        return crowded * len(self._order) > MOST_STEPS

    @cached_property
    def _neighbours(self) -> list[list[int] | None]:
        """List for each buffer the others that live in one of its steps; None for a crowd."""
        found: list[list[int] | None] = []
        living: list[int] = []
        for index, (_, until) in enumerate(self._windows):
            living = [other for other in living if self._lasts[other] >= self._firsts[index]]
            is_crowd = len(living) + until - index - 1 > CROWD_COUNT
            found.append(None if is_crowd else [*living, *range(index + 1, until)])
            living.append(index)
        return found

    def _peaks(self, sizes: Sequence[int]) -> list[int]:
        """Return how many bytes live when each buffer starts, itself and those before it."""
        peaks: list[int] = []
        living = ended = 0
        for size, ended_count in zip(sizes, self._ended_counts, strict=True):
            while ended < ended_count:
                living -= sizes[self._by_end[ended]]
                ended += 1
            living += size
            peaks.append(living)
        return peaks

    def _best_order(
        self, sizes: Sequence[int], peaks: Sequence[int], peak_bytes: int
    ) -> tuple[list[int], int]:
        """Try the orders until one needs no more than the peak; give the best offsets and size."""
        best: list[int] = []
        best_size: int | None = None
        for keys in self._keys(sizes, peaks):
            order = sorted(range(len(sizes)), key=keys.__getitem__)
            offsets = self._place_in_order(sizes, order)
            size = max(map(operator.add, offsets, sizes), default=0)
            if best_size is None or size < best_size:
                best, best_size = offsets, size
            if best_size == peak_bytes:
                break
        return best, best_size or 0

    def _place_in_order(self, sizes: Sequence[int], order: Iterable[int]) -> list[int]:
        """Put one after the other into the tightest gap that its neighbours leave, or above."""
        neighbours, has_crowds = self._neighbours, None in self._neighbours
        places: list[tuple[int, int] | None] = [None] * len(sizes)
        placed: list[tuple[int, int, int, int]] = []  # by offset: from, to, first step, last step
        for index in order:
            others, first, last = neighbours[index], self._firsts[index], self._lasts[index]
            if others is None:
                taken = [
                    (start, end)
                    for start, end, begun, ended in placed
                    if begun <= last and ended >= first
                ]
            else:
                taken = [place for other in others if (place := places[other]) is not None]
                taken.sort()
            offset = _tightest_gap(sizes[index], taken)
            end = offset + sizes[index]
            places[index] = offset, end
            if has_crowds:
                insort(placed, (offset, end, first, last))
        return [place[0] for place in places if place is not None]

    def _keys(
        self, sizes: Sequence[int], peaks: Sequence[int]
    ) -> Iterator[Sequence[tuple[int, int]]]:
        """Return the orders by their keys; ties keep the order of the starts.

        Each puts first what is hardest to place later: what is large, what lives in the fullest
        step, what lives long; the last meets the buffers as an allocator would.
        """
        firsts, lasts = self._firsts, self._lasts
        yield [(-size, first) for size, first in zip(sizes, firsts, strict=True)]
        breadths = [max(peaks[first:until]) for first, until in self._windows]
        yield [(-breadth, -size) for breadth, size in zip(breadths, sizes, strict=True)]
        lengths = [first - last for first, last in zip(firsts, lasts, strict=True)]
        yield [(length, -size) for length, size in zip(lengths, sizes, strict=True)]
        yield [(first, -size) for first, size in zip(firsts, sizes, strict=True)]


def _allocate(
    sizes: Sequence[int], firsts: Sequence[int], lasts: Sequence[int]
) -> tuple[list[int], int, int]:
    """Place buffers in the order of their starts; give offsets, the size, and the peak.

    Each goes into the smallest hole that the dead ones have left, or on top. O(n log n).
    """
    offsets: list[int] = []
    holes = Holes()
    living: list[tuple[int, int, int]] = []  # last step, offset, size
    top = alive = peak = 0
    for size, first, last in zip(sizes, firsts, lasts, strict=True):
        while living and living[0][0] < first:
            _, offset, freed = heapq.heappop(living)
            holes.add(offset, freed)
            alive -= freed
        found = holes.take(size)
        if found is None:
            found, top = top, top + size
        offsets.append(found)
        heapq.heappush(living, (last, found, size))
        alive += size
        peak = max(peak, alive)
    return offsets, top, peak


def _tightest_gap(size: int, taken: Iterable[tuple[int, int]]) -> int:
    """Find the lowest offset in the smallest gap that holds the size; taken is sorted."""
    offset: int | None = None
    smallest = 0
    top = 0
    for start, end in taken:
        gap = start - top
        if gap >= size and (offset is None or gap < smallest):
            offset, smallest = top, gap
        if end > top:
            top = end
    return top if offset is None else offset
