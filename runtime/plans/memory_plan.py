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
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...errors import GraphError
from .arena_holes import Holes

__all__ = ["ALIGN_BYTES", "ArenaPlan", "Lifetime", "plan_arena"]

ALIGN_BYTES = 64  # a cache line, and the widest vector register of a CPU
CROWD_COUNT = 256  # with more neighbours in time, a walk past all blocks is cheaper than a list
MOST_STEPS = 1 << 20  # of walks past all blocks, in each order; beyond that a plan takes seconds


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How much memory a buffer takes, and in which steps it holds data, first and last included."""

    size_bytes: int
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where in the arena each buffer lies; all numbers are bytes."""

    offsets: tuple[int, ...]
    """From the start of the arena, in the order of the lifetimes."""
    size_bytes: int
    """What the arena needs, if it starts at a multiple of the alignment."""
    peak_bytes: int
    """The most that lives in one step, sizes rounded up to the alignment: no plan needs less."""


def plan_arena(lifetimes: Sequence[Lifetime], align_bytes: int = ALIGN_BYTES) -> ArenaPlan:
    """Return an offset for every buffer so that no two that live at the same time overlap.

    Sizes and offsets are in bytes; offsets are multiples of align_bytes, a power of two. An empty
    buffer takes no memory. The same lifetimes give the same plan. Pure, so any thread may call it;
    O(n log n) for many buffers.

    Raises GraphError for a lifetime that ends before it starts, a negative size, and a bad
    alignment.

    Source: "greedy by size" and "greedy by breadth" for offset calculation, Pisarchyk and Lee 2020,
    arXiv:2001.03288.
    """
    if align_bytes < 1 or align_bytes & (align_bytes - 1):
        raise GraphError(f"align_bytes is {align_bytes}; give a power of two, such as 64")
    for index, lifetime in enumerate(lifetimes):
        _check_lifetime(index, lifetime)
    blocks = _blocks_of(lifetimes, align_bytes)
    if _count_crowded(blocks) * len(blocks) > MOST_STEPS:
        block_offsets, size_bytes, peak_bytes = _allocate_blocks(blocks)
    else:
        breadths = _find_breadths(blocks)
        peak_bytes = max(breadths, default=0)
        block_offsets, size_bytes = _place_blocks(blocks, breadths, peak_bytes)
    starts = dict(zip((block.index for block in blocks), block_offsets, strict=True))
    offsets = tuple(starts.get(index, 0) for index in range(len(lifetimes)))
    return ArenaPlan(offsets, size_bytes, peak_bytes)


@dataclass(frozen=True, slots=True)
class _Block:
    """A buffer that is not empty; the size is aligned."""

    index: int
    size: int
    first: int
    last: int


def _check_lifetime(index: int, lifetime: Lifetime) -> None:
    if lifetime.size_bytes < 0:
        raise GraphError(f"buffer {index} has {lifetime.size_bytes} bytes; give 0 or more")
    if lifetime.last_step < lifetime.first_step:
        raise GraphError(
            f"buffer {index} ends in step {lifetime.last_step}, before it starts in step "
            f"{lifetime.first_step}; give the step that writes it first, the last that reads it "
            f"last"
        )


def _blocks_of(lifetimes: Sequence[Lifetime], align_bytes: int) -> list[_Block]:
    """Make the blocks, by start; what is empty needs none."""
    blocks = [
        _Block(
            index,
            -(-lifetime.size_bytes // align_bytes) * align_bytes,
            lifetime.first_step,
            lifetime.last_step,
        )
        for index, lifetime in enumerate(lifetimes)
        if lifetime.size_bytes
    ]
    return sorted(blocks, key=lambda block: (block.first, block.index))


def _count_crowded(blocks: Sequence[_Block]) -> int:
    """Count the blocks that live at the same time as more than CROWD_COUNT others.

    blocks: by start.
    """
    if len(blocks) <= CROWD_COUNT:
        return 0
    starts = [block.first for block in blocks]
    ends = sorted(block.last for block in blocks)
    return sum(
        bisect_right(starts, block.last) - bisect_left(ends, block.first) - 1 > CROWD_COUNT
        for block in blocks
    )


def _allocate_blocks(blocks: Sequence[_Block]) -> tuple[list[int], int, int]:
    """Place blocks in the order of their starts; give offsets, the size, and the peak.

    Each goes into the smallest hole that the dead ones have left, or on top. O(n log n).
    """
    offsets: list[int] = []
    holes = Holes()
    living: list[tuple[int, int, int]] = []  # last step, offset, size
    top = alive = peak = 0
    for block in blocks:
        while living and living[0][0] < block.first:
            _, offset, size = heapq.heappop(living)
            holes.add(offset, size)
            alive -= size
        found = holes.take(block.size)
        if found is None:
            found, top = top, top + block.size
        offsets.append(found)
        heapq.heappush(living, (block.last, found, block.size))
        alive += block.size
        peak = max(peak, alive)
    return offsets, top, peak


def _find_breadths(blocks: Sequence[_Block]) -> list[int]:
    """Return for each block the most bytes that live in any one step of its life.

    blocks: by start. The sum grows only where a block starts, so those steps are enough.
    """
    starts = [block.first for block in blocks]
    breadths: list[int] = []
    living = 0
    ends = sorted((block.last, block.size) for block in blocks)
    ended = 0
    for block in blocks:
        while ends[ended][0] < block.first:
            living -= ends[ended][1]
            ended += 1
        living += block.size
        breadths.append(living)
    return [
        max(breadths[bisect_left(starts, block.first) : bisect_right(starts, block.last)])
        for block in blocks
    ]


# Each puts first what is hardest to place later: what is large, what lives in the fullest step,
# what lives long; the last meets the blocks as an allocator would. Ties keep the blocks' order.
_ORDERS: tuple[Callable[[_Block, int], tuple[int, ...]], ...] = (
    lambda block, _: (-block.size, block.first),
    lambda block, breadth: (-breadth, -block.size),
    lambda block, _: (block.first - block.last, -block.size),
    lambda block, _: (block.first, -block.size),
)


def _place_blocks(
    blocks: Sequence[_Block], breadths: Sequence[int], peak_bytes: int
) -> tuple[list[int], int]:
    """Try the orders until one needs no more than the peak; give the best offsets and size."""
    neighbours = _find_neighbours(blocks)
    best: list[int] = []
    best_size: int | None = None
    for key in _ORDERS:
        order = sorted(range(len(blocks)), key=lambda i: key(blocks[i], breadths[i]))
        offsets = _place_in_order(blocks, neighbours, order)
        size = max(
            (offset + block.size for offset, block in zip(offsets, blocks, strict=True)), default=0
        )
        if best_size is None or size < best_size:
            best, best_size = offsets, size
        if best_size == peak_bytes:
            break
    return best, best_size or 0


def _find_neighbours(blocks: Sequence[_Block]) -> list[list[int] | None]:
    """List for each block the others that live in one of its steps; None for more than CROWD_COUNT.

    blocks: by start.
    """
    found: list[list[int] | None] = []
    starts = [block.first for block in blocks]
    living: list[int] = []
    for index, block in enumerate(blocks):
        living = [other for other in living if blocks[other].last >= block.first]
        until = bisect_right(starts, block.last)
        is_crowded = len(living) + until - index - 1 > CROWD_COUNT
        found.append(None if is_crowded else [*living, *range(index + 1, until)])
        living.append(index)
    return found


def _place_in_order(
    blocks: Sequence[_Block], neighbours: Sequence[list[int] | None], order: Iterable[int]
) -> list[int]:
    """Put block after block into the tightest gap that its neighbours leave, or above them."""
    places: list[tuple[int, int] | None] = [None] * len(blocks)
    has_crowds = None in neighbours
    placed: list[tuple[int, int, int, int]] = []  # by offset: from, to, first step, last step
    for index in order:
        block, others = blocks[index], neighbours[index]
        if others is None:
            taken = [
                (start, end)
                for start, end, first, last in placed
                if first <= block.last and last >= block.first
            ]
        else:
            taken = [place for other in others if (place := places[other]) is not None]
            taken.sort()
        offset = _tightest_gap(block.size, taken)
        places[index] = offset, offset + block.size
        if has_crowds:
            insort(placed, (offset, offset + block.size, block.first, block.last))
    return [place[0] for place in places if place is not None]


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
