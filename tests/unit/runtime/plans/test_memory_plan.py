"""Buffers that live at the same time lie apart; the others share the arena."""

from __future__ import annotations

import itertools
import random

import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.plans import memory_plan
from aioinfer.runtime.plans.memory_plan import ArenaPlan, Lifetime, Spans, plan_arena


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
    plan = plan_arena([Lifetime(0, 0, 9), Lifetime(64, 0, 9), Lifetime(0, 0, 9)])
    assert plan == ArenaPlan(offsets=(0, 0, 0), size_bytes=64, peak_bytes=64)


def test_spans_place_buffers_of_other_sizes_as_if_they_were_new() -> None:
    chance = random.Random(2)
    firsts = [chance.randrange(20) for _ in range(50)]
    kept = [(first, first + chance.randrange(9)) for first in firsts]
    spans = Spans(kept)
    for _ in range(5):
        sizes = [chance.choice((0, chance.randrange(1, 999))) for _ in kept]
        lifetimes = [Lifetime(size, *span) for size, span in zip(sizes, kept, strict=True)]
        assert spans.place(sizes) == plan_arena(lifetimes)


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


REFUSED = {
    "ends in step 2, before it starts in step 5": [Lifetime(8, 5, 2)],
    "buffer 1 has -8 bytes": [Lifetime(8, 0, 0), Lifetime(-8, 0, 0)],
}


@pytest.mark.parametrize("message", REFUSED)
def test_lifetimes_that_make_no_sense_are_refused(message: str) -> None:
    with pytest.raises(GraphError, match=message):
        plan_arena(REFUSED[message])


@pytest.mark.parametrize("align_bytes", [0, -64, 3, 96])
def test_an_alignment_that_is_no_power_of_two_is_refused(align_bytes: int) -> None:
    with pytest.raises(GraphError, match=f"align_bytes is {align_bytes}; give a power of two"):
        plan_arena([Lifetime(8, 0, 0)], align_bytes)


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_many_buffers_at_a_time_are_placed_as_an_allocator_meets_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spans, "_place_in_order", None)  # each of its walks is O(n)
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
