"""Random lifetimes: nobody writes over what still holds data, and little memory is wasted."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.runtime.memory_plan import ArenaPlan, Lifetime, Lifetimes, plan_arena

EXAMPLES = settings(max_examples=150, deadline=None)
STEP_COUNT = 12
ALIGNMENTS = st.sampled_from([1, 4, 64, 256])


@st.composite
def lifetimes_without_views(draw, max_count=30, max_size=300):
    spans = st.tuples(st.integers(0, STEP_COUNT), st.integers(0, STEP_COUNT)).map(sorted)
    buffers = st.tuples(st.integers(0, max_size), spans)
    return [
        Lifetime(size, first, last)
        for size, (first, last) in draw(st.lists(buffers, max_size=max_count))
    ]


@st.composite
def lifetimes_with_views(draw):
    """Draw buffers of which some lie inside an earlier one, in an order that is shuffled."""
    drawn = draw(lifetimes_without_views())
    places = draw(st.permutations(range(len(drawn))))
    made: list[Lifetime | None] = [None] * len(drawn)
    for index, lifetime in enumerate(drawn):
        owner = draw(st.none() | st.integers(0, index - 1)) if index else None
        if owner is not None:
            room = made[places[owner]].size_bytes
            size = draw(st.integers(0, room))
            offset = draw(st.integers(0, room - size))
            lifetime = Lifetime(
                size, lifetime.first_step, lifetime.last_step, places[owner], offset
            )
        made[places[index]] = lifetime
    return made


def root_of(lifetimes: list[Lifetime], index: int) -> int:
    while (owner := lifetimes[index].alias_of) is not None:
        index = owner
    return index


def bytes_held(lifetimes: list[Lifetime], plan: ArenaPlan, index: int) -> set[int]:
    return set(range(plan.offsets[index], plan.offsets[index] + lifetimes[index].size_bytes))


@EXAMPLES
@given(lifetimes=lifetimes_with_views(), align_bytes=ALIGNMENTS)
def test_no_step_writes_over_what_somebody_still_needs(lifetimes, align_bytes) -> None:
    """An arena that knows whose each byte is: from its first to its last step all is its own."""
    plan = plan_arena(lifetimes, align_bytes)
    roots = [root_of(lifetimes, index) for index in range(len(lifetimes))]
    families = {
        root: [lifetime for lifetime, its in zip(lifetimes, roots, strict=True) if its == root]
        for root in roots
    }
    for step in range(STEP_COUNT + 1):
        holder: dict[int, int] = {}
        for root, family in families.items():
            first = min(lifetime.first_step for lifetime in family)
            last = max(lifetime.last_step for lifetime in family)
            if first <= step <= last:
                held = bytes_held(lifetimes, plan, root)
                assert holder.keys().isdisjoint(held)
                holder.update(dict.fromkeys(held, root))
        assert all(0 <= byte < plan.size_bytes for byte in holder)


@EXAMPLES
@given(lifetimes=lifetimes_with_views(), align_bytes=ALIGNMENTS)
def test_views_lie_in_their_owners_and_owners_are_aligned(lifetimes, align_bytes) -> None:
    plan = plan_arena(lifetimes, align_bytes)
    for index, lifetime in enumerate(lifetimes):
        if lifetime.alias_of is None:
            assert plan.offsets[index] % align_bytes == 0
        else:
            owner = plan.offsets[lifetime.alias_of]
            assert plan.offsets[index] == owner + lifetime.offset_bytes
            assert bytes_held(lifetimes, plan, index) <= bytes_held(
                lifetimes, plan, lifetime.alias_of
            )


@EXAMPLES
@given(lifetimes=lifetimes_without_views(), align_bytes=ALIGNMENTS)
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


@settings(max_examples=60, deadline=None)
@given(lifetimes=lifetimes_without_views(max_count=6, max_size=9))
def test_a_small_plan_is_at_most_twice_the_best(lifetimes) -> None:
    best = smallest_arena(lifetimes)
    assert best <= plan_arena(lifetimes, align_bytes=1).size_bytes <= 2 * best


@EXAMPLES
@given(lifetimes=lifetimes_with_views(), chance=st.randoms(use_true_random=False))
def test_collecting_in_any_order_gives_the_same_lifetimes(lifetimes, chance) -> None:
    collected = Lifetimes()
    for lifetime in lifetimes:
        collected.new(lifetime.size_bytes)
    calls = []
    for buffer, lifetime in enumerate(lifetimes):
        calls += [(collected.use, buffer, lifetime.first_step)]
        calls += [(collected.use, buffer, lifetime.last_step)]
        if lifetime.alias_of is not None:
            calls += [(collected.alias, buffer, lifetime.alias_of, lifetime.offset_bytes)]
    chance.shuffle(calls)
    for function, *arguments in calls:
        function(*arguments)
    assert list(collected.resolve()) == lifetimes
