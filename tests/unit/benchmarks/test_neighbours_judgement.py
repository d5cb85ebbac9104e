"""What turns beside neighbours say: figures, ours against the better peer, who comes when."""

import io
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import FULL, SHORT
from neighbours_judgement import Turn, percentile, reached, rows_of
from neighbours_report import ALONE, WIDTH, latency_text, ratio_text, table_of
from neighbours_situations import (
    SITUATIONS,
    Placement,
    by_placement,
    expected_s,
    threads_for,
    turn_order,
)
from peers_engines import ENGINES
from rich.console import Console

QUIET, NOISY = 0.0, 0.5


def turn(*times_ms: float, strangers: float = QUIET, image_rate: float | None = None) -> Turn:
    return Turn(sum(times_ms) / len(times_ms), strangers, np.array(times_ms), image_rate)


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.integers(1, 100))
def test_a_percentile_is_the_smallest_time_that_enough_do_not_exceed(
    times: list[float], number: int
) -> None:
    found = percentile(np.array(times), number)
    assert found == sorted(times)[math.ceil(len(times) * number / 100) - 1]


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 3))
def test_each_engine_comes_first_and_before_each_other_as_often(count: int, cycles: int) -> None:
    engines = list("abcd"[:count])
    orders = [turn_order(engines, number) for number in range(2 * count * cycles)]
    assert all(sorted(order) == engines for order in orders)
    firsts = Counter(order[0] for order in orders)
    assert set(firsts.values()) == {2 * cycles}
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert all(follows[one, other] == follows[other, one] for one, other in follows)


def test_situations_share_processes_where_nothing_is_settled_by_loading() -> None:
    groups = by_placement(list(SITUATIONS))
    assert groups[Placement(None, 1)] == ["alone", "busy1", "busy2", "busy4", "thread", "decoders"]
    assert groups[Placement(1.5, 1)] == ["quota1.5"]
    assert groups[Placement(None, 2)] == ["pair"]
    assert ALONE == ("alone",)


@pytest.mark.parametrize(
    ("quota", "count"), [(None, 4), (9.0, 4), (2.0, 2), (1.5, 2), (1.0, 1), (0.2, 1)]
)
def test_a_quota_cuts_the_threads(quota: float | None, count: int) -> None:
    assert threads_for(4, quota) == count


def test_the_usual_run_is_short_and_the_full_one_covers_everything() -> None:
    short_s, full_s = (
        expected_s(len(plan.models), plan.situations, len(ENGINES), plan.rounds, plan.seconds)
        for plan in (SHORT, FULL)
    )
    assert short_s < 6 * 60
    assert full_s < 45 * 60
    assert set(FULL.situations) == set(SITUATIONS)


def test_ours_is_held_against_the_better_peer_by_mean_and_by_p99() -> None:
    turns = {
        "aioinfer": [turn(2.0, 2.0), turn(2.0, 6.0)],
        "onnxruntime": [turn(1.0, 1.0), turn(1.0, 9.0)],
        "openvino": [turn(4.0, 4.0, 4.0, 3.0)],
    }
    ours, first, second = rows_of({("tagger", "busy1"): turns})
    assert (ours.mean_ms, ours.p50_ms, ours.p99_ms, ours.runs) == (3.0, 2.0, 6.0, 4)
    assert (ours.mean_ratio, ours.p99_ratio) == (1.0, pytest.approx(4 / 6))
    assert ours.peers == {"mean": "onnxruntime", "p99": "openvino"}
    assert first.mean_ratio is None
    assert (second.engine, second.p99_ms) == ("openvino", 4.0)
    assert "mean_ratio" not in second.flat()
    assert ours.flat()["mean_ratio"] == 1.0


def test_noisy_turns_do_not_count_while_half_are_quiet() -> None:
    taken = [turn(2.0), turn(50.0, strangers=NOISY)]
    (row,) = rows_of({("tagger", "busy1"): {"aioinfer": taken}})
    assert (row.mean_ms, row.runs, row.turns, row.noisy_turns) == (2.0, 1, 2, 1)
    (row,) = rows_of({("tagger", "busy1"): {"aioinfer": [*taken, taken[1]]}})
    assert (row.mean_ms, row.runs) == (34.0, 3)


def test_without_peers_or_turns_there_is_no_ratio() -> None:
    (row,) = rows_of({("tagger", "alone"): {"aioinfer": [turn(1.0)], "openvino": []}})
    assert row.mean_ratio is None
    assert rows_of({("tagger", "alone"): {}}) == []


def test_only_what_has_a_neighbour_is_judged() -> None:
    fast, slow = [turn(*[1.0] * 99, 9.0)], [turn(2.0)]
    by_engine = {"aioinfer": fast, "onnxruntime": slow}
    other_way = {"aioinfer": slow, "onnxruntime": [turn(1.0)]}
    found = {("m", "alone"): other_way, ("m", "busy1"): other_way, ("m", "pair"): by_engine}
    assert reached(rows_of(found), ALONE) == (2, 1, 1)


def test_images_are_counted_where_there_are_decoders() -> None:
    taken = [turn(1.0, image_rate=80.0), turn(1.0, image_rate=100.0)]
    assert rows_of({("m", "decoders"): {"aioinfer": taken}})[0].flat()["image_rate"] == 90.0
    assert "image_rate" not in rows_of({("m", "alone"): {"aioinfer": [turn(1.0)]}})[0].flat()


def test_a_latency_is_mean_median_and_p99() -> None:
    (few,) = rows_of({("m", "alone"): {"aioinfer": [turn(1.0, 2.0, 12345.0)]}})
    (many,) = rows_of({("m", "alone"): {"aioinfer": [turn(*[0.004] * 98, 0.02, 0.02)]}})
    assert latency_text(few, "ms") == "4116 2.00 ~12345"
    assert latency_text(many, "us") == "4.32 4.00 20.0"
    assert latency_text(None, "ms") == "-"


def test_a_ratio_is_coloured_where_it_is_judged() -> None:
    shown = [ratio_text(ratio, is_alone=False) for ratio in (1.0, 0.96, 0.5, 1455.6)]
    assert [text.plain for text in shown] == ["1.00", "0.96", "0.50", "1456"]
    assert [text.style for text in shown] == ["green", "yellow", "red", "green"]
    assert ratio_text(0.5, is_alone=True).style == ""
    assert ratio_text(None, is_alone=True).plain == "-"


def test_the_table_fits_its_width() -> None:
    taken = {name: [turn(1234.5, 99999.0, strangers=NOISY)] * 33 for name in ENGINES}
    rows = rows_of({("mobilenet_v2", name): taken for name in SITUATIONS})
    text = io.StringIO()
    Console(file=text, width=WIDTH).print(table_of(rows))
    lines = text.getvalue().splitlines()
    assert sum("50617 1234 ~99999" in line for line in lines) == len(SITUATIONS)
    assert not any("…" in line for line in lines)
    for situation in SITUATIONS.values():
        assert any(situation.title in line and "99/99" in line for line in lines)
