"""Which device gets a model: pure decisions."""

from __future__ import annotations

import math

import pytest

from aioinfer.backends.auto.choose import (
    Piece,
    by_speed,
    expected_s,
    is_same_or_one_of,
    joint_devices,
    unheld,
    without,
)
from aioinfer.runtime.costs import NodeCost


def test_what_is_measured_is_ordered_and_the_rest_stays_in_place() -> None:
    order = ["CUDA", "CPU", "OPENCL", "REFERENCE"]
    assert by_speed(order, {}) == order
    times_s = {"CUDA": 3.0, "OPENCL": 1.0, "REFERENCE": 2.0, "GONE": 0.1}
    assert by_speed(order, times_s) == ["OPENCL", "CPU", "REFERENCE", "CUDA"]


@pytest.mark.parametrize(
    ("taken", "joint"),
    [
        ({}, ""),
        ({"A": "ab", "B": "bc"}, "AB"),
        ({"A": "ab", "B": "b", "C": "bc"}, "AC"),
        ({"A": "", "B": "ab", "C": "c"}, "BC"),
        ({"A": "ab", "B": "b"}, ""),
        ({"A": "a", "B": "b", "C": "abc"}, "ABC"),
    ],
)
def test_devices_take_a_model_together_if_no_node_is_left(
    taken: dict[str, str], joint: str
) -> None:
    assert joint_devices(taken, "abc") == [*joint]


@pytest.mark.parametrize(
    ("held", "priority", "left"),
    [
        ({}, "LOW", ["A", "B"]),
        ({"A": "MEDIUM"}, "MEDIUM", ["A", "B"]),
        ({"A": "HIGH"}, "MEDIUM", ["B"]),
        ({"A": "HIGH", "B": "HIGH"}, "LOW", ["B"]),
        ({"A": "HIGH", "B": "MEDIUM"}, "HIGH", ["A", "B"]),
    ],
)
def test_devices_of_models_of_a_higher_priority_are_left_alone(
    held: dict[str, str], priority: str, left: list[str]
) -> None:
    assert unheld(["A", "B"], held, priority) == left


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        ([], ["CUDA", "CPU", "X.1"]),
        (["CPU"], ["CUDA", "X.1"]),
        (["CUDA"], ["CPU", "X.1"]),
        (["CUDA.1"], ["CUDA.0", "CUDA.2", "CPU", "X.1"]),
        (["X"], ["CUDA", "CPU"]),
        (["X.1", "CUDA", "CPU"], []),
    ],
)
def test_devices_are_left_out_by_kind_or_one_by_one(excluded: list[str], left: list[str]) -> None:
    assert without(["CUDA", "CPU", "X.1"], excluded, lambda _: ["0", "1", "2"]) == left


def test_a_name_is_a_device_or_its_kind() -> None:
    assert is_same_or_one_of("CUDA.1", "CUDA")
    assert is_same_or_one_of("CUDA.1", "CUDA.1")
    assert not is_same_or_one_of("CUDA.1", "CUDA.0")
    assert not is_same_or_one_of("CUDA", "CUDA.0")


def test_a_cut_pays_if_the_slow_part_is_small_and_little_crosses() -> None:
    small, large = NodeCost(1e5, 1e5), NodeCost(1e7, 1e6)
    whole = expected_s([Piece("REFERENCE", [large] * 99 + [small])])
    pieces = [
        Piece("CPU", [large] * 60),
        Piece("REFERENCE", [small]),
        Piece("CPU", [large] * 39),
    ]
    assert expected_s(pieces, [1 << 20]) < whole / 10
    assert expected_s(pieces, [1 << 34]) > whole
    tiny = NodeCost(10, 80)
    cut = [Piece("CPU", [tiny]), Piece("REFERENCE", [tiny])]
    assert expected_s(cut) > expected_s([Piece("REFERENCE", [tiny, tiny])])
    assert math.isinf(expected_s([Piece("CUDA", [tiny])]))


def test_bytes_count_where_there_is_little_to_compute() -> None:
    moved, computed = NodeCost(1e6, 8e9), NodeCost(80e9, 1e6)
    assert expected_s([Piece("CPU", [moved])]) == pytest.approx(1, rel=0.01)
    assert expected_s([Piece("CPU", [computed])]) == pytest.approx(1, rel=0.01)
    assert expected_s([Piece("CPU", [NodeCost(0.0, 0.0)])]) == 0
