"""Random lifetimes: no step writes over what still holds data, and little memory is wasted."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.runtime.plans.memory_plan import ArenaPlan, Lifetime, plan_arena
from exhaustive import drawn

EXAMPLES = settings(max_examples=drawn(150))
STEP_COUNT = 12
ALIGNMENTS = st.sampled_from([1, 4, 64, 256])


@st.composite
def random_lifetimes(draw, max_count=30, max_size=300):
    spans = st.tuples(st.integers(0, STEP_COUNT), st.integers(0, STEP_COUNT)).map(sorted)
    buffers = st.tuples(st.integers(0, max_size), spans)
    return [
        Lifetime(size, first, last)
        for size, (first, last) in draw(st.lists(buffers, max_size=max_count))
    ]


def bytes_held(lifetimes: list[Lifetime], plan: ArenaPlan, index: int) -> set[int]:
    return set(range(plan.offsets[index], plan.offsets[index] + lifetimes[index].size_bytes))


@EXAMPLES
@given(lifetimes=random_lifetimes(), align_bytes=ALIGNMENTS)
def test_no_step_writes_over_what_another_still_needs(lifetimes, align_bytes) -> None:
    """An arena that knows whose each byte is: from its first to its last step all is its own."""
    plan = plan_arena(lifetimes, align_bytes)
    assert all(offset % align_bytes == 0 for offset in plan.offsets)
    for step in range(STEP_COUNT + 1):
        holder: dict[int, int] = {}
        for index, lifetime in enumerate(lifetimes):
            if lifetime.first_step <= step <= lifetime.last_step:
                held = bytes_held(lifetimes, plan, index)
                assert holder.keys().isdisjoint(held)
                holder.update(dict.fromkeys(held, index))
        assert all(0 <= byte < plan.size_bytes for byte in holder)


@EXAMPLES
@given(lifetimes=random_lifetimes(), align_bytes=ALIGNMENTS)
def test_the_peak_is_the_fullest_step(lifetimes, align_bytes) -> None:
    def aligned(size: int) -> int:
        return (size + align_bytes - 1) // align_bytes * align_bytes

    plan = plan_arena(lifetimes, align_bytes)
    living = [
        sum(aligned(one.size_bytes) for one in lifetimes if one.first_step <= step <= one.last_step)
        for step in range(STEP_COUNT + 1)
    ]
    assert plan.peak_bytes == max(living)
    assert plan.peak_bytes <= plan.size_bytes <= sum(aligned(one.size_bytes) for one in lifetimes)
    assert plan_arena(tuple(lifetimes), align_bytes) == plan, "the same input, the same plan"


def smallest_arena(lifetimes: list[Lifetime]) -> int:
    """Try everything: in some order, each lies right above the earlier ones that it meets."""
    smallest = None
    for order in permutations(lifetimes):
        tops: list[tuple[int, Lifetime]] = []
        for one in order:
            below = [
                top
                for top, other in tops
                if other.first_step <= one.last_step and one.first_step <= other.last_step
            ]
            tops.append((max(below, default=0) + one.size_bytes, one))
        size = max((top for top, _ in tops), default=0)
        smallest = size if smallest is None else min(smallest, size)
    return smallest or 0


@settings(max_examples=drawn(60))
@given(lifetimes=random_lifetimes(max_count=6, max_size=9))
def test_a_small_plan_is_at_most_twice_the_best(lifetimes) -> None:
    best = smallest_arena(lifetimes)
    assert best <= plan_arena(lifetimes, align_bytes=1).size_bytes <= 2 * best
