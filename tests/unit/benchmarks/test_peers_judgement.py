"""What slots say: the order they are taken in, which of them count, who is ahead."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers_judgement import (
    Slot,
    busy_s,
    counted,
    foreign_cpus,
    lower_quartile,
    middle,
    slot_orders,
    verdict,
)

ENGINES = ["a", "b", "c"]
QUIET, NOISY = 0.0, 0.5


@given(slot_count=st.integers(1, 30), seed=st.integers(0, 1000))
def test_each_engine_has_one_slot_in_each_round(slot_count: int, seed: int) -> None:
    orders = slot_orders(ENGINES, slot_count, seed)
    assert len(orders) == slot_count
    assert all(sorted(order) == ENGINES for order in orders)
    assert orders == slot_orders(ENGINES, slot_count, seed)


def test_every_engine_comes_first_now_and_then() -> None:
    firsts = Counter(order[0] for order in slot_orders(ENGINES, 300, 1))
    assert min(firsts[name] for name in ENGINES) > 60


def test_noisy_slots_are_left_out_while_half_are_quiet() -> None:
    slots = [Slot(1.0, QUIET), Slot(2.0, QUIET), Slot(9.0, NOISY), Slot(8.0, NOISY)]
    assert counted(slots) == [1.0, 2.0]
    assert counted(slots[1:]) == [2.0, 9.0, 8.0]


def test_statistics() -> None:
    assert middle([3.0, 1.0, 2.0]) == 2.0
    assert lower_quartile([5.0, 1.0, 2.0, 3.0, 4.0]) == 2.0
    assert lower_quartile([7.0]) == 7.0


@pytest.mark.parametrize(
    ("ours", "is_more_better", "ratio", "peer", "word"),
    [
        (10.0, False, 0.8, "b", "behind"),
        (8.2, False, 8 / 8.2, "b", "tie"),
        (4.0, False, 2.0, "b", "ahead"),
        (10.0, True, 10 / 12, "a", "behind"),
        (12.5, True, 12.5 / 12, "a", "tie"),
        (24.0, True, 2.0, "a", "ahead"),
    ],
)
def test_ours_is_held_against_the_better_peer(
    ours: float, is_more_better: bool, ratio: float, peer: str, word: str
) -> None:
    said = verdict(ours, {"a": 12.0, "b": 8.0}, is_more_better)
    assert said is not None
    assert said.ratio == pytest.approx(ratio)
    assert (said.peer, said.word) == (peer, word)


def test_without_peers_there_is_no_verdict() -> None:
    assert verdict(1.0, {}, is_more_better=True) is None


def test_waiting_is_not_work() -> None:
    stat = "cpu  100 20 30 4000 5000 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert busy_s(stat, 100) == pytest.approx(1.71)


def test_foreign_work_is_what_is_not_ours() -> None:
    assert foreign_cpus(busy_s=3.0, own_s=2.0, elapsed_s=2.0) == 0.5
    assert foreign_cpus(busy_s=1.9, own_s=2.0, elapsed_s=1.0) == 0.0
