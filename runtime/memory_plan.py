"""The memory plan: where in one arena each buffer of a plan lies. Pure, shared by all devices.

Theory of operation. Steps are the kernels of a plan in the order in which they run. A buffer
holds data in a closed interval of steps, so what a step reads and what it writes never share
memory; where they may, the result is declared a view of the input. Views are first merged into
their owners: such a block of memory lives from the first step of any member to the last step of
any. Finding offsets for the blocks is NP-hard, so several greedy orders are tried. Each takes block
after block and puts it into the tightest gap between the blocks that live at the same time; the
smallest arena wins, and none can be smaller than the peak. Where very many blocks live at the same
time, that would take too long: then they are placed once, as an allocator meets them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import GraphError
from .arena_holes import Holes

__all__ = ["ALIGN_BYTES", "ArenaPlan", "Lifetime", "Lifetimes", "plan_arena"]

ALIGN_BYTES = 64  # a cache line, and the widest vector register of a CPU
CROWD_COUNT = 256  # with more neighbours in time, a walk past all blocks is cheaper than a list
MOST_STEPS = 1 << 20  # of walks past all blocks, in each order; beyond that a plan takes seconds


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How much memory a buffer takes, and in which steps it holds data, first and last included.

    A view has ``alias_of``, the index of its owner in the same list, and lies ``offset_bytes`` into
    it; the owner may be a view itself. An owner lives at least as long as its views.
    """

    size_bytes: int
    first_step: int
    last_step: int
    alias_of: int | None = None
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where in the arena each buffer lies; all numbers are bytes."""

    offsets: tuple[int, ...]
    """From the start of the arena, in the order of the lifetimes."""
    size_bytes: int
    """What the arena needs, if it starts at a multiple of the alignment."""
    peak_bytes: int
    """The most that lives in one step, sizes rounded up to the alignment: no plan needs less."""


class Lifetimes:
    """Collects the lifetimes of a plan while its kernels are walked through, in any order.

    A buffer is named by the number that ``new`` gave it. Not thread-safe.
    """

    __slots__ = ("_owners", "_sizes", "_spans")

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._owners: dict[int, tuple[int, int]] = {}
        self._spans: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} buffers, {len(self._owners)} of them views>"

    def new(self, size_bytes: int) -> int:
        """Add a buffer, which may be empty, and return its number: 0, 1, 2 and so on.

        Raises GraphError for a negative size.
        """
        buffer = len(self._sizes)
        _check_size(buffer, size_bytes)
        self._sizes.append(size_bytes)
        return buffer

    def use(self, buffer: int, step: int) -> None:
        """Say that a step reads or writes the buffer: it holds data from its first use to its last.

        Raises GraphError for an unknown buffer.
        """
        self._check_known(buffer)
        first, last = self._spans.get(buffer, (step, step))
        self._spans[buffer] = (min(first, step), max(last, step))

    def alias(self, buffer: int, owner: int, offset_bytes: int = 0) -> None:
        """Let the buffer lie inside its owner's memory, ``offset_bytes`` from the owner's start.

        For a reshape, an input of a Concat, a result that is computed in place. Raises GraphError
        for an unknown buffer, one that is a view already, an owner that lies inside the buffer, or
        a view that sticks out of its owner.
        """
        self._check_known(buffer)
        self._check_known(owner)
        if buffer in self._owners:
            raise GraphError(
                f"buffer {buffer} is a view of buffer {self._owners[buffer][0]} already; alias "
                f"that one, or make a new buffer"
            )
        _check_inside(buffer, self._sizes[buffer], owner, self._sizes[owner], offset_bytes)
        outer: int | None = owner
        while outer is not None:
            if outer == buffer:
                raise _cycle(buffer)
            outer = self._owners[outer][0] if outer in self._owners else None
        self._owners[buffer] = (owner, offset_bytes)

    def resolve(self) -> tuple[Lifetime, ...]:
        """Return the lifetimes so far, by buffer number, each with the steps of its own uses.

        A buffer that no step names itself, only its views or its owner, has the steps of all
        buffers that share its memory. Raises GraphError if there are none.
        """
        owners = [self._owners.get(buffer, (None, 0)) for buffer in range(len(self))]
        places = _find_places(owners)
        shared: dict[int, tuple[int, int]] = {}
        for buffer, span in self._spans.items():
            root, _ = places[buffer]
            shared[root] = _join(shared.get(root, span), span)
        lifetimes = []
        for buffer, (size_bytes, owner) in enumerate(zip(self._sizes, owners, strict=True)):
            steps = self._spans.get(buffer) or shared.get(places[buffer][0])
            if steps is None:
                raise GraphError(
                    f"buffer {buffer} ({size_bytes} bytes) is used in no step, nor is what shares "
                    f"its memory; call use({buffer}, step) for the step that writes it, or leave "
                    f"the buffer out"
                )
            lifetimes.append(Lifetime(size_bytes, *steps, *owner))
        return tuple(lifetimes)

    def _check_known(self, buffer: int) -> None:
        if not 0 <= buffer < len(self):
            raise GraphError(
                f"buffer {buffer} is not among the {len(self)} buffers; give a number that new() "
                f"returned"
            )


def plan_arena(lifetimes: Sequence[Lifetime], align_bytes: int = ALIGN_BYTES) -> ArenaPlan:
    """Give every buffer an offset so that no two that live at the same time overlap.

    Sizes and offsets are in bytes; offsets are multiples of align_bytes, a power of two, and those
    of views are ``offset_bytes`` after their owner's. An empty buffer takes no memory. The same
    lifetimes give the same plan. Pure, so any thread may call it; O(n log n) for many buffers.

    Raises GraphError for a lifetime that ends before it starts, a negative size, a view that sticks
    out of its owner or has none, views that own each other in a cycle, and a bad alignment.

    Source: "greedy by size" and "greedy by breadth" for offset calculation, Pisarchyk and Lee 2020,
    arXiv:2001.03288.
    """
    if align_bytes < 1 or align_bytes & (align_bytes - 1):
        raise GraphError(f"align_bytes is {align_bytes}; give a power of two, such as 64")
    for index in range(len(lifetimes)):
        _check_lifetime(index, lifetimes)
    places = _find_places([(lifetime.alias_of, lifetime.offset_bytes) for lifetime in lifetimes])
    blocks = _merge_views(lifetimes, places, align_bytes)
    if _count_crowded(blocks) * len(blocks) > MOST_STEPS:
        block_offsets, size_bytes, peak_bytes = _allocate_blocks(blocks)
    else:
        breadths = _find_breadths(blocks)
        peak_bytes = max(breadths, default=0)
        block_offsets, size_bytes = _place_blocks(blocks, breadths, peak_bytes)
    starts = dict(zip((block.index for block in blocks), block_offsets, strict=True))
    offsets = tuple(starts.get(root, 0) + inside for root, inside in places)
    return ArenaPlan(offsets, size_bytes, peak_bytes)


@dataclass(frozen=True, slots=True)
class _Block:
    """An owner that is nobody's view, with the life of all its views; the size is aligned."""

    index: int
    size: int
    first: int
    last: int


def _check_size(index: int, size_bytes: int) -> None:
    if size_bytes < 0:
        raise GraphError(f"buffer {index} has {size_bytes} bytes; give 0 or more")


def _check_inside(view: int, size: int, owner: int, owner_size: int, offset: int) -> None:
    if offset < 0 or offset + size > owner_size:
        raise GraphError(
            f"buffer {view} takes bytes {offset} to {offset + size} of its owner {owner}, which "
            f"has {owner_size}; give the owner more room, or the view memory of its own"
        )


def _cycle(index: int) -> GraphError:
    return GraphError(
        f"buffer {index} would be a view of itself, through the owners of its owner; one of "
        f"them must have memory of its own"
    )


def _check_lifetime(index: int, lifetimes: Sequence[Lifetime]) -> None:
    lifetime = lifetimes[index]
    _check_size(index, lifetime.size_bytes)
    if lifetime.last_step < lifetime.first_step:
        raise GraphError(
            f"buffer {index} ends in step {lifetime.last_step}, before it starts in step "
            f"{lifetime.first_step}; give the step that writes it first, the last that reads it "
            f"last"
        )
    owner = lifetime.alias_of
    if owner is None:
        if lifetime.offset_bytes:
            raise GraphError(
                f"buffer {index} has offset_bytes {lifetime.offset_bytes} and no owner; set "
                f"alias_of, or leave the offset to the plan"
            )
        return
    if not 0 <= owner < len(lifetimes):
        raise GraphError(
            f"buffer {index} is a view of {owner}, which is not among the {len(lifetimes)} "
            f"buffers; give an index into the same list"
        )
    owner_size = lifetimes[owner].size_bytes
    _check_inside(index, lifetime.size_bytes, owner, owner_size, lifetime.offset_bytes)


def _join(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])


def _find_places(owners: Sequence[tuple[int | None, int]]) -> list[tuple[int, int]]:
    """Tell for each buffer which one is its outermost owner, and how far into that it lies."""
    places: dict[int, tuple[int, int]] = {}
    for index in range(len(owners)):
        path: dict[int, int] = {}
        at = index
        while at not in places:
            if at in path:
                raise _cycle(at)
            owner, offset = owners[at]
            if owner is None:
                places[at] = (at, 0)
            else:
                path[at] = offset
                at = owner
        root, inside = places[at]
        for member, offset in reversed(path.items()):
            inside += offset
            places[member] = (root, inside)
    return [places[index] for index in range(len(owners))]


def _merge_views(
    lifetimes: Sequence[Lifetime], places: Sequence[tuple[int, int]], align_bytes: int
) -> list[_Block]:
    """Make the blocks, by start; what is empty needs none."""
    spans: dict[int, tuple[int, int]] = {}
    for lifetime, (root, _) in zip(lifetimes, places, strict=True):
        span = (lifetime.first_step, lifetime.last_step)
        spans[root] = _join(spans.get(root, span), span)
    blocks = []
    for root, span in spans.items():
        size = -(-lifetimes[root].size_bytes // align_bytes) * align_bytes
        if size:
            blocks.append(_Block(root, size, *span))
    return sorted(blocks, key=lambda block: (block.first, block.index))


def _count_crowded(blocks: Sequence[_Block]) -> int:
    """Count the blocks that live at the same time as more than CROWD_COUNT others.

    blocks: by start.
    """
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
    """Tell for each block the most bytes that live in any one step of its life.

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
    offsets = [-1] * len(blocks)
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
            taken = sorted(
                (offsets[other], offsets[other] + blocks[other].size)
                for other in others
                if offsets[other] >= 0
            )
        offset = offsets[index] = _tightest_gap(block.size, taken)
        insort(placed, (offset, offset + block.size, block.first, block.last))
    return offsets


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
