"""What the search tries next, when it stops and who wins, on made up measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aioinfer.cli.tuning.search import (
    AXES,
    Choice,
    Goal,
    Settled,
    Slice,
    Space,
    doublings,
    has_won,
    is_time_for_search,
    next_challenger,
    score,
    slice_seconds,
    winner_of,
)

SPACE = Space(
    streams=(1, 2, 4, 8),
    threads=(1, 2, 4, 8),
    requests=(1, 2, 4, 8, 16),
    batch=(1, 2, 4, 8, 16),
    precision=("f32", "bf16", "f16"),
)


def settled(choice: Choice) -> Settled:
    streams = choice.streams or 1
    return Settled(streams, choice.threads or 8, choice.requests or 2 * streams)


def search(speed: Callable[[Choice], float], space: Space = SPACE) -> tuple[Choice, int]:
    """Search as the shell does, where each slice measures just the speed."""
    best, axis, tried = Choice(), None, {Choice()}
    while found := next_challenger(best, settled(best), space, tried, axis):
        moved, challenger = found
        tried.add(challenger)
        ratios: list[float] = []
        while (verdict := has_won(ratios)) is None:
            ratios.append(speed(challenger) / speed(best))
        if verdict:
            best, axis = challenger, moved
    return best, len(tried)


def test_a_choice_sets_only_what_it_chooses() -> None:
    assert Choice().config() == {}
    assert Choice("THROUGHPUT", 2, 4, 8, 16, "bf16").config() == {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "NUM_STREAMS": 2,
        "INFERENCE_NUM_THREADS": 4,
        "INFERENCE_PRECISION_HINT": "bf16",
    }


def test_the_best_of_independent_axes_is_found_in_few_trials() -> None:
    def speed(choice: Choice) -> float:
        streams = {1: 1.0, 2: 1.5, 4: 2.2, 8: 1.8}[choice.streams or 1]
        batch = {1: 1.0, 2: 1.6, 4: 2.1, 8: 2.05, 16: 1.7}[choice.batch]
        precision = {None: 1.0, "f32": 1.0, "bf16": 1.7, "f16": 0.4}[choice.precision]
        threads = (choice.threads or 8) / 8
        return streams * batch * precision * threads

    best, count = search(speed)
    assert (best.streams, best.batch, best.precision) == (4, 4, "bf16")
    assert best.threads in (None, 8)
    assert count < 30


def test_where_all_is_equal_the_default_stays_and_the_search_ends() -> None:
    best, count = search(lambda _: 7.0)
    assert best == Choice()
    assert count <= 1 + 2 * len(AXES)


def test_an_axis_without_values_is_left_alone() -> None:
    best, count = search(lambda choice: float(choice.batch), Space(batch=(1, 2)))
    assert (best, count) == (Choice(batch=2), 2)
    assert next_challenger(Choice(), settled(Choice()), Space(), set()) is None


def test_steps_are_taken_from_what_the_network_has() -> None:
    found = next_challenger(Choice(), Settled(3, 8, 6), SPACE, set())
    assert found == ("streams", Choice(streams=4))
    found = next_challenger(Choice(), Settled(3, 8, 6), SPACE, {Choice(streams=4)})
    assert found == ("streams", Choice(streams=2))


def test_more_streams_get_the_requests_that_suit_them() -> None:
    best = Choice(streams=2, requests=16)
    assert next_challenger(best, settled(best), SPACE, set()) == ("streams", Choice(streams=4))


def test_an_axis_that_has_won_is_tried_first() -> None:
    best = Choice(batch=4)
    found = next_challenger(best, settled(best), SPACE, set(), "batch")
    assert found == ("batch", Choice(batch=8))


JOINED = replace(SPACE, joined_rows=(1, 2, 4, 8, 16, 32, 64))


def test_the_search_on_batch_begins_with_enough_rows_to_pay() -> None:
    own = Choice(requests=4)
    only = Space(joined_rows=JOINED.joined_rows)
    assert next_challenger(own, settled(own), only, set()) == (
        "joined_rows",
        Choice(joined_rows=16),
    )
    few = Space(joined_rows=(1, 2))
    assert next_challenger(own, settled(own), few, set()) == ("joined_rows", Choice(joined_rows=2))


def test_rows_that_batch_joins_go_up_and_down_and_get_the_requests_that_suit_them() -> None:
    best, tried = Choice(joined_rows=16, requests=64), set[Choice]()
    found = []
    while step := next_challenger(best, settled(best), Space(joined_rows=(1, 8, 16, 32)), tried):
        tried.add(step[1])
        found.append(step)
    assert found == [
        ("joined_rows", Choice(joined_rows=32)),
        ("joined_rows", Choice(joined_rows=8)),
    ]


def test_a_step_from_one_way_of_having_rows_to_the_other_keeps_their_number() -> None:
    def along(axis: str, best: Choice, space: Space) -> list[Choice]:
        tried, found = set[Choice](), []
        while step := next_challenger(best, settled(best), space, tried, axis):
            tried.add(step[1])
            found += [step[1]] if step[0] == axis else []
        return found

    assert along("joined_rows", Choice(batch=8, requests=4), JOINED) == [Choice(joined_rows=8)]
    assert along("batch", Choice(joined_rows=8, requests=4), JOINED) == [Choice(batch=8)]
    assert along("batch", Choice(joined_rows=64), JOINED) == [Choice(batch=16)], "its most"
    assert along("joined_rows", Choice(batch=8), SPACE) == [], "no BATCH for this model"
    assert along("batch", Choice(joined_rows=8), replace(JOINED, batch=())) == []


@pytest.mark.parametrize(("best_batch", "best_joined"), [(16, 1), (1, 32)])
def test_of_both_ways_the_better_one_is_found_in_few_trials(
    best_batch: int, best_joined: int
) -> None:
    def speed(choice: Choice) -> float:
        assert min(choice.batch, choice.joined_rows) == 1
        if choice.batch == best_batch and choice.joined_rows == best_joined:
            return 4.0
        rows = max(choice.batch, choice.joined_rows)
        return min(rows, 8) ** 0.5 + rows / 100

    best, count = search(speed, JOINED)
    assert (best.batch, best.joined_rows) == (best_batch, best_joined)
    assert count < 40


def test_the_devices_own_precision_is_not_tried_again() -> None:
    only = Space(precision=("f32", "bf16"))
    assert next_challenger(Choice(), settled(Choice()), only, set()) == (
        "precision",
        Choice(precision="bf16"),
    )
    best = Choice(precision="bf16")
    assert next_challenger(best, settled(best), only, {Choice()}) is None


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([], None),
        ([9.0], None),
        ([0.1], None),
        ([1.5, 1.3], True),
        ([0.5, 0.8], False),
        ([1.5, 0.8], None),
        ([0.95, 0.95], None),
        ([0.95, 0.95, 0.95], False),
        ([1.1, 1.1, 1.1, 1.1], None),
        ([1.1, 1.1, 1.1, 1.1, 1.1], True),
        ([1.01, 1.01, 1.01, 1.01, 1.01], False),
        ([5.0, 1.0, 1.0, 1.0, 1.0], False),
        ([0.2, 1.1, 1.1, 1.1, 0.2], True),
    ],
)
def test_a_challenger_wins_by_the_median_or_clearly(
    ratios: list[float], verdict: bool | None
) -> None:
    assert has_won(ratios) is verdict


def test_of_several_that_took_turns_the_simplest_wins_unless_another_is_clearly_better() -> None:
    assert winner_of([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0], [2.01, 2.02, 0.1]]) == 1
    assert winner_of([[1.0, 1.0, 1.0], [1.01, 1.01, 1.01]]) == 0
    assert winner_of([[1.0, 4.0, 1.0], [1.1, 4.4, 1.1], [1.5, 4.0, 1.05]]) == 1
    assert winner_of([[1.0]]) == 0


def test_the_score_is_throughput_latency_or_throughput_within_a_bound() -> None:
    quick, broad = Slice(100.0, 5.0, 8.0), Slice(400.0, 20.0, 30.0)
    slow = replace(broad, p90_ms=90.0)
    assert score(broad, Goal()) > score(quick, Goal())
    assert score(quick, Goal(is_latency=True)) > score(broad, Goal(is_latency=True))
    bound = Goal(most_ms=10.0)
    assert score(quick, bound) > score(broad, bound) > score(slow, bound) > 0


def test_the_search_leaves_time_for_the_last_measurement() -> None:
    assert is_time_for_search(0.0, 60.0)
    assert is_time_for_search(44.0, 60.0)
    assert not is_time_for_search(46.0, 60.0)


def test_slices_are_short_and_not_too_short() -> None:
    assert slice_seconds(60) == pytest.approx(0.4)
    assert slice_seconds(1) == 0.05
    assert slice_seconds(3600) == 1.0


def test_doublings_end_with_the_most() -> None:
    assert doublings(1) == (1,)
    assert doublings(8) == (1, 2, 4, 8)
    assert doublings(12) == (1, 2, 4, 8, 12)
    assert doublings(0) == (1,)
