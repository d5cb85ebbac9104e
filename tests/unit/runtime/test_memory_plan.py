"""Buffers that live at the same time lie apart; the others share the arena."""

from __future__ import annotations

import itertools
import random

import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime import memory_plan
from aioinfer.runtime.memory_plan import ArenaPlan, Lifetime, Lifetimes, plan_arena


def test_nothing_needs_nothing() -> None:
    assert plan_arena([]) == ArenaPlan(offsets=(), size_bytes=0, peak_bytes=0)


def test_a_chain_of_steps_needs_two_buffers() -> None:
    chain = [Lifetime(100, step, step + 1) for step in range(10)]
    plan = plan_arena(chain)
    assert plan.offsets == (0, 128) * 5
    assert plan.size_bytes == plan.peak_bytes == 256


def test_what_a_step_reads_and_what_it_writes_lie_apart() -> None:
    read, written = Lifetime(64, 0, 3), Lifetime(64, 3, 5)
    assert plan_arena([read, written]).offsets == (0, 64)
    assert plan_arena([read, Lifetime(64, 4, 5)]).offsets == (0, 0)


def test_a_buffer_takes_the_tightest_gap() -> None:
    """After step 0 the first and the third are gone: 500 bytes are free, then a wall, then 300."""
    lasts = {500: 0, 400: 1, 300: 0, 200: 1}
    lifetimes = [Lifetime(size, 0, last) for size, last in lasts.items()]
    plan = plan_arena([*lifetimes, Lifetime(100, 1, 1)], align_bytes=4)
    assert plan.offsets == (0, 500, 900, 1200, 900)
    assert plan.size_bytes == plan.peak_bytes == 1400


@pytest.mark.parametrize("align_bytes", [1, 2, 64, 256, 4096])
def test_offsets_are_aligned(align_bytes: int) -> None:
    plan = plan_arena([Lifetime(size, 0, 1) for size in (1, 65, 257, 5000)], align_bytes)
    assert [offset % align_bytes for offset in plan.offsets] == [0, 0, 0, 0]
    assert plan.size_bytes % align_bytes == 0


def test_an_empty_buffer_takes_no_memory() -> None:
    plan = plan_arena([Lifetime(0, 0, 9), Lifetime(64, 0, 9), Lifetime(0, 0, 9, alias_of=0)])
    assert plan == ArenaPlan(offsets=(0, 0, 0), size_bytes=64, peak_bytes=64)


# Size, first step and last step of buffers that fit the peak in one of the orders only.
FIT_IN_ONE_ORDER = {
    "largest first": [(3, 3, 4), (4, 1, 2), (3, 4, 5), (2, 3, 5), (2, 0, 3)],
    "fullest step first": [(3, 2, 2), (3, 0, 2), (3, 2, 5), (4, 0, 1)],
    "longest life first": [(3, 4, 5), (4, 1, 1), (2, 1, 4), (2, 3, 5)],
    "earliest first": [(3, 0, 1), (2, 3, 4), (3, 4, 4), (1, 0, 3)],
}


@pytest.mark.parametrize("order", FIT_IN_ONE_ORDER)
def test_the_best_of_several_orders_is_taken(order: str) -> None:
    plan = plan_arena([Lifetime(*numbers) for numbers in FIT_IN_ONE_ORDER[order]], align_bytes=1)
    assert plan.size_bytes == plan.peak_bytes


def test_a_crowd_of_buffers_is_placed_like_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    lifetimes = []
    for _ in range(80):
        first = chance.randrange(40)
        lifetimes.append(Lifetime(chance.randrange(1, 999), first, first + chance.randrange(40)))
    few = plan_arena(lifetimes)
    monkeypatch.setattr(memory_plan, "CROWD_COUNT", 0)
    assert plan_arena(lifetimes) == few


def test_two_thousand_buffers_of_a_network_with_skips_fit_the_peak() -> None:
    lifetimes = [
        Lifetime(64 * (1 + step % 7), step, step + (9 if step % 5 == 0 else 1))
        for step in range(2000)
    ]
    plan = plan_arena(lifetimes)
    assert len(plan.offsets) == 2000
    assert plan.size_bytes <= plan.peak_bytes * 1.1


def test_the_inputs_of_a_concat_lie_in_its_result() -> None:
    lifetimes = Lifetimes()
    left, right, joined, other = (lifetimes.new(size) for size in (100, 28, 128, 64))
    lifetimes.alias(left, joined)
    lifetimes.alias(right, joined, offset_bytes=100)
    for buffer, step in ((left, 0), (other, 0), (other, 1), (right, 1), (joined, 4)):
        lifetimes.use(buffer, step)
    plan = plan_arena(lifetimes.resolve())
    assert plan == ArenaPlan(offsets=(0, 100, 0, 128), size_bytes=192, peak_bytes=192)


def test_an_owner_lives_as_long_as_its_views() -> None:
    lifetimes = Lifetimes()
    made, reshaped, late = lifetimes.new(64), lifetimes.new(64), lifetimes.new(64)
    lifetimes.alias(reshaped, made)
    for buffer, step in ((made, 0), (reshaped, 5), (late, 3)):
        lifetimes.use(buffer, step)
    assert lifetimes.resolve() == (
        Lifetime(64, 0, 0),
        Lifetime(64, 5, 5, alias_of=made),
        Lifetime(64, 3, 3),
    )
    assert plan_arena(lifetimes.resolve()).offsets == (0, 0, 64)


def test_a_view_of_a_view_adds_the_offsets() -> None:
    views = [
        Lifetime(4, 7, 8, alias_of=1, offset_bytes=8),
        Lifetime(16, 2, 3, alias_of=2, offset_bytes=32),
        Lifetime(64, 0, 1),
        Lifetime(64, 8, 8),
    ]
    assert plan_arena(views).offsets == (40, 32, 0, 64)


def test_a_long_chain_of_results_computed_in_place_needs_one_buffer() -> None:
    in_place = [Lifetime(64, 0, 1)]
    in_place += [Lifetime(64, step, step + 1, alias_of=step - 1) for step in range(1, 5000)]
    for lifetimes in (in_place, mirrored(in_place)):
        plan = plan_arena(lifetimes)
        assert set(plan.offsets) == {0}
        assert plan.size_bytes == plan.peak_bytes == 64


def mirrored(lifetimes: list[Lifetime]) -> list[Lifetime]:
    """The same buffers in reversed order, so that views come before their owners."""
    last = len(lifetimes) - 1
    return [
        Lifetime(
            lifetime.size_bytes,
            lifetime.first_step,
            lifetime.last_step,
            None if lifetime.alias_of is None else last - lifetime.alias_of,
            lifetime.offset_bytes,
        )
        for lifetime in reversed(lifetimes)
    ]


def test_a_buffer_that_only_its_relatives_use_lives_with_them() -> None:
    lifetimes = Lifetimes()
    joined, part, unread = lifetimes.new(8), lifetimes.new(4), lifetimes.new(4)
    lifetimes.alias(part, joined)
    lifetimes.alias(unread, joined, 4)
    lifetimes.use(part, 6)
    lifetimes.use(part, 2)
    spans = [(lifetime.first_step, lifetime.last_step) for lifetime in lifetimes.resolve()]
    assert spans == [(2, 6)] * 3
    assert repr(lifetimes) == "<Lifetimes 3 buffers, 2 of them views>"


def test_a_buffer_without_any_use_is_refused() -> None:
    lifetimes = Lifetimes()
    lifetimes.use(lifetimes.new(8), 0)
    lifetimes.new(12)
    with pytest.raises(GraphError, match=r"buffer 1 \(12 bytes\) is used in no step.*use\(1, step"):
        lifetimes.resolve()


REFUSED = {
    "ends in step 2, before it starts in step 5": [Lifetime(8, 5, 2)],
    "buffer 1 has -8 bytes": [Lifetime(8, 0, 0), Lifetime(-8, 0, 0)],
    "buffer 1 takes bytes 4 to 12 of its owner 0, which has 8": [
        Lifetime(8, 0, 0),
        Lifetime(8, 0, 0, alias_of=0, offset_bytes=4),
    ],
    "takes bytes -1 to 7": [Lifetime(8, 0, 0), Lifetime(8, 0, 0, alias_of=0, offset_bytes=-1)],
    "buffer 0 is a view of 1, which is not among the 1": [Lifetime(8, 0, 0, alias_of=1)],
    "a view of -1, which is not": [Lifetime(8, 0, 0, alias_of=-1)],
    "buffer 0 has offset_bytes 4 and no owner": [Lifetime(8, 0, 0, offset_bytes=4)],
    "buffer 0 would be a view of itself": [Lifetime(8, 0, 0, alias_of=0)],
    "buffer 1 would be a view of itself": [
        Lifetime(8, 0, 0, alias_of=1),
        Lifetime(8, 0, 0, alias_of=2),
        Lifetime(8, 0, 0, alias_of=1),
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_lifetimes_that_make_no_sense_are_refused(message: str) -> None:
    with pytest.raises(GraphError, match=message):
        plan_arena(REFUSED[message])


@pytest.mark.parametrize("align_bytes", [0, -64, 3, 96])
def test_an_alignment_that_is_no_power_of_two_is_refused(align_bytes: int) -> None:
    with pytest.raises(GraphError, match=f"align_bytes is {align_bytes}; give a power of two"):
        plan_arena([Lifetime(8, 0, 0)], align_bytes)


def test_the_collection_refuses_at_the_call_that_is_wrong() -> None:
    lifetimes = Lifetimes()
    outer, inner, small = lifetimes.new(8), lifetimes.new(8), lifetimes.new(4)
    with pytest.raises(GraphError, match="buffer 3 has -1 bytes"):
        lifetimes.new(-1)
    for unknown in (3, -1):
        with pytest.raises(GraphError, match=f"buffer {unknown} is not among the 3 buffers"):
            lifetimes.use(unknown, 0)
        with pytest.raises(GraphError, match=f"buffer {unknown} is not among"):
            lifetimes.alias(small, unknown)
    with pytest.raises(GraphError, match="buffer 0 takes bytes 0 to 8 of its owner 2"):
        lifetimes.alias(outer, small)
    lifetimes.alias(inner, outer)
    with pytest.raises(GraphError, match="buffer 0 would be a view of itself"):
        lifetimes.alias(outer, inner)
    with pytest.raises(GraphError, match="buffer 1 is a view of buffer 0 already"):
        lifetimes.alias(inner, small)
    assert len(lifetimes) == 3
    assert repr(lifetimes) == "<Lifetimes 3 buffers, 1 of them views>"


def no_overlap(lifetimes: list[Lifetime], plan: ArenaPlan) -> bool:
    taken: dict[int, list[tuple[int, int]]] = {}
    for offset, lifetime in zip(plan.offsets, lifetimes, strict=True):
        for step in range(lifetime.first_step, lifetime.last_step + 1):
            taken.setdefault(step, []).append((offset, offset + lifetime.size_bytes))
    return all(
        first[1] <= second[0]
        for places in map(sorted, taken.values())
        for first, second in itertools.pairwise(places)
    )


@pytest.mark.parametrize("seed", range(5))
def test_many_buffers_at_a_time_are_placed_as_an_allocator_meets_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_plan, "_place_in_order", None)  # each of its walks is O(n)
    draw = random.Random(seed)
    starts = [draw.randrange(1500) for _ in range(3000)]
    lifetimes = [Lifetime(draw.randrange(1, 999), at, at + draw.randrange(500)) for at in starts]
    plan = plan_arena(lifetimes)
    assert no_overlap(lifetimes, plan)
    assert plan.peak_bytes <= plan.size_bytes <= 1.2 * plan.peak_bytes
    assert plan == plan_arena(lifetimes)


def test_many_buffers_that_all_live_together_need_the_peak() -> None:
    plan = plan_arena([Lifetime(64, step, 20_000) for step in range(20_000)])
    assert plan.size_bytes == plan.peak_bytes == 64 * 20_000
