"""When a plan counts as short: measured, by signature, and not for ever."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.runs.inline_gate import (
    BEARABLE_NS,
    FAR_TOO_LONG,
    FIRST_RUNS,
    KEPT_SIGNATURES,
    MOST_FIRST_RUNS,
    OVERRUN_COST,
    WINDOW_RUNS,
    InlineGate,
    ServiceTime,
)
from aioinfer.runtime.tensors.tensor import Port

THRESHOLD_NS = 50_000
FIXED = Port("x", TensorType(DType.FLOAT32, (1, 3)))
OPEN = Port("x", TensorType(DType.FLOAT32, ("n", 3)))


def noted(*times_ns: int) -> ServiceTime:
    time = ServiceTime(THRESHOLD_NS)
    for time_ns in times_ns:
        time.note(time_ns)
    return time


def test_nothing_is_short_before_it_was_measured_often_enough() -> None:
    time = ServiceTime(THRESHOLD_NS)
    for _ in range(FIRST_RUNS):
        assert not time.is_short
        time.note(1)
    assert time.is_short


def test_the_least_time_counts_and_the_threshold_is_within() -> None:
    assert noted(9_000_000, THRESHOLD_NS, 800_000).is_short
    assert not noted(9_000_000, THRESHOLD_NS + 1, 800_000).is_short


def test_a_plan_that_has_become_slower_stops_being_short() -> None:
    time = noted(*[10_000] * FIRST_RUNS)
    for _ in range(2 * WINDOW_RUNS):
        time.note(2 * THRESHOLD_NS)
    assert not time.is_short


def test_a_plan_that_was_slow_at_first_is_found_short_later() -> None:
    time = noted(*[2 * THRESHOLD_NS] * FIRST_RUNS)
    assert not time.is_short
    for _ in range(WINDOW_RUNS):
        time.note(10_000)
    assert time.is_short


def test_a_caller_that_is_held_up_now_and_then_is_no_sign() -> None:
    time = noted(*[10_000] * FIRST_RUNS)
    for _ in range(20):
        time.note(1000 * THRESHOLD_NS, is_inline=True)
        for _ in range(OVERRUN_COST):
            time.note(10_000, is_inline=True)
        assert time.is_short


def test_callers_that_are_held_up_often_send_the_next_runs_away_each_time_longer() -> None:
    time = noted(*[10_000] * FIRST_RUNS)
    counts = []
    for _ in range(12):
        while time.is_short:
            time.note(FAR_TOO_LONG * THRESHOLD_NS + 1, is_inline=True)
        count = 0
        while not time.is_short:
            time.note(10_000)
            count += 1
        counts.append(count)
    assert counts[:3] == [2 * FIRST_RUNS, 4 * FIRST_RUNS, 8 * FIRST_RUNS]
    assert counts == sorted(counts)
    assert counts[-1] == MOST_FIRST_RUNS


def test_a_network_of_fixed_shapes_has_one_time() -> None:
    gate = InlineGate([FIXED], 50)
    time = gate.time_of({"x": np.ones((1, 3), np.float32)})
    assert gate.time_of({"x": np.zeros((1, 3), np.float32)}) is time


def test_open_shapes_have_times_of_their_own() -> None:
    gate = InlineGate([OPEN], 50)
    short = gate.time_of({"x": np.ones((1, 3), np.float32)})
    for _ in range(FIRST_RUNS):
        short.note(1000)
    assert gate.time_of({"x": np.zeros((1, 3), np.float32)}).is_short
    assert not gate.time_of({"x": np.ones((1000, 3), np.float32)}).is_short


def test_only_so_many_shapes_are_remembered() -> None:
    gate = InlineGate([OPEN], 50)
    for length in range(3 * KEPT_SIGNATURES):
        gate.time_of({"x": np.ones((length, 3), np.float32)})
        assert len(gate._by_signature) <= KEPT_SIGNATURES


def test_one_shape_too_many_forgets_the_oldest_alone() -> None:
    gate = InlineGate([OPEN], 50)
    given = [{"x": np.ones((length, 3), np.float32)} for length in range(KEPT_SIGNATURES + 1)]
    times = [gate.time_of(item) for item in given]
    assert all(gate.time_of(item) is time for item, time in zip(given[1:], times[1:], strict=True))
    assert gate.time_of(given[0]) is not times[0]


def test_runs_of_states_of_one_size_to_a_half_are_alike() -> None:
    """A state that grows has another length in each run, and would never be known otherwise."""
    past = Port("past", TensorType(DType.FLOAT32, (1, "past", 4)))
    gate = InlineGate([FIXED, past], 50)
    gate.follow_states({"past": "present"})

    def time_of(rows: int) -> ServiceTime:
        x = np.ones((1, 3), np.float32)
        return gate.time_of({"x": x, "past": np.ones((1, rows, 4), np.float32)})

    assert time_of(9) is time_of(15)
    assert time_of(15) is not time_of(16)
    assert time_of(0) is not time_of(1)
    assert len({id(time_of(rows)) for rows in range(4, 4096)}) == 10


def test_a_state_of_fixed_shape_tells_no_runs_apart() -> None:
    gate = InlineGate([FIXED], 50)
    gate.follow_states({"x": "y"})
    assert gate.only is not None


@pytest.mark.parametrize(("run_ns", "wanted"), [(BEARABLE_NS, True), (BEARABLE_NS + 1, False)])
def test_a_caller_that_blocks_bears_longer_runs(run_ns: int, wanted: bool) -> None:
    time = noted(run_ns, run_ns, run_ns)
    assert not time.is_short
    assert time.is_bearable == wanted
