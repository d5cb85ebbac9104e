"""The cut for a pipeline: against trying all cuts, and on graphs of thousands of nodes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations
from typing import Any

import pytest

from aioinfer.backends.hetero.policies import pipeline_cut
from aioinfer.backends.hetero.policies.pipeline_cut import (
    PipelineDevice,
    PipelineStage,
    Weight,
    cut_pipeline,
)
from exhaustive import all_but

FAR = 1e-6
"""Between the slowest stages of two cuts that count as alike, relative."""


def device(
    name: str, node_s: Sequence[float], carry_s: float = 0.0, memory_bytes: int | None = None
) -> PipelineDevice:
    carries = (0.0, *[carry_s] * (len(node_s) - 1), 0.0)
    return PipelineDevice(name, tuple(node_s), carries, memory_bytes)


def shown(stages: Sequence[PipelineStage] | None) -> list[tuple[str, int, int]]:
    assert stages is not None
    return [(stage.device, stage.first, stage.end) for stage in stages]


def slowest(stages: Sequence[PipelineStage]) -> float:
    return max(stage.seconds for stage in stages)


# Trying all: every order of every choice of devices, and every choice of places between them.


def all_cuts(
    devices: Sequence[PipelineDevice], weights: Sequence[Sequence[Weight]], joined: Sequence[int]
) -> Iterator[float]:
    count = len(devices[0].node_s)
    places = [place for place in range(1, count) if place not in joined]
    for used in range(1, len(devices) + 1):
        for order in permutations(devices, used):
            for inner in combinations(places, used - 1):
                bounds = pairwise((0, *inner, count))
                yield max(
                    stage_s(one, weights, first, end)
                    for one, (first, end) in zip(order, bounds, strict=True)
                )


def stage_s(
    one: PipelineDevice, weights: Sequence[Sequence[Weight]], first: int, end: int
) -> float:
    held = dict(weight for node in weights[first:end] for weight in node)
    if one.memory_bytes is not None and sum(held.values()) > one.memory_bytes:
        return math.inf
    return sum(one.node_s[first:end]) + one.carry_s[first] + one.carry_s[end]


def random_case(
    seed: int,
) -> tuple[list[PipelineDevice], list[list[Weight]], list[int]]:
    source = random.Random(seed)
    count = source.randint(1, 8)
    constants: list[Weight] = [(number, source.randint(1, 9)) for number in range(5)]
    weights = [source.sample(constants, source.randint(0, 2)) for _ in range(count)]
    devices: list[PipelineDevice] = []
    for number in range(source.randint(1, 3)):
        node_s = tuple(
            math.inf if source.random() < 0.12 else source.random() for _ in range(count)
        )
        carry_s = tuple(source.choice([0.0, source.random()]) for _ in range(count + 1))
        limit = source.choice([None, None, source.randint(5, 30)])
        if devices and source.random() < 0.4:
            node_s, carry_s = devices[-1].node_s, devices[-1].carry_s
            limit = devices[-1].memory_bytes
        devices.append(PipelineDevice(f"D.{number}", node_s, carry_s, limit))
    joined = [place for place in range(1, count) if source.random() < 0.15]
    return devices, weights, joined


@pytest.mark.parametrize("has_many_states", all_but([False], [False, True]))
def test_no_cut_of_all_is_better(has_many_states: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_many_states:
        monkeypatch.setattr(pipeline_cut, "MOST_STATES", 1)
    fitting = 0
    for seed in range(600):
        devices, weights, joined = random_case(seed)
        if has_many_states:  # then the devices keep their order, so only one kind is compared
            devices = [device for device in devices if device.node_s == devices[0].node_s]
            same = devices[0]
            devices = [
                PipelineDevice(one.name, same.node_s, same.carry_s, same.memory_bytes)
                for one in devices
            ]
        best = min(all_cuts(devices, weights, joined))
        stages = cut_pipeline(devices, weights, joined)
        if best == math.inf:
            assert stages is None
            continue
        fitting += 1
        assert stages is not None
        assert slowest(stages) == pytest.approx(best, rel=FAR)
        for stage in stages:
            one = next(device for device in devices if device.name == stage.device)
            seconds = stage_s(one, weights, stage.first, stage.end)
            assert stage.seconds == pytest.approx(seconds, rel=FAR)
        bounds = [0, *[stage.end for stage in stages]]
        assert [stage.first for stage in stages] == bounds[:-1]
        assert bounds[-1] == len(devices[0].node_s)
        assert not set(bounds[1:-1]) & set(joined)
        assert len({stage.device for stage in stages}) == len(stages)
    assert 300 < fitting < 600


def test_the_slowest_stage_decides_and_not_the_number_of_nodes() -> None:
    node_s = [6.0, 1.0, 1.0, 1.0, 3.0]
    stages = cut_pipeline([device("A", node_s), device("B", node_s)])
    assert shown(stages) == [("A", 0, 1), ("B", 1, 5)]


def test_a_faster_device_gets_more() -> None:
    node_s = [1.0] * 9
    stages = cut_pipeline([device("A", node_s), device("B", [item / 2 for item in node_s])])
    assert stages is not None
    assert {stage.device: stage.end - stage.first for stage in stages} == {"A": 3, "B": 6}
    assert slowest(stages) == pytest.approx(3.0)


def test_devices_may_come_in_another_order_than_listed() -> None:
    stages = cut_pipeline([device("A", [math.inf, 1.0, 1.0]), device("B", [1.0, 1.0, math.inf])])
    assert shown(stages) in ([("B", 0, 1), ("A", 1, 3)], [("B", 0, 2), ("A", 2, 3)])


def test_what_crosses_moves_the_cut() -> None:
    carry_s = (0.0, 0.0, 5.0, 0.1, 0.0)
    devices = [PipelineDevice(name, (1.0, 1.0, 1.0, 1.0), carry_s) for name in "AB"]
    assert shown(cut_pipeline(devices)) == [("A", 0, 1), ("B", 1, 4)] or shown(
        cut_pipeline(devices)
    ) == [("A", 0, 3), ("B", 3, 4)]


def test_a_second_device_is_left_out_where_it_costs_more_than_it_saves() -> None:
    devices = [device(name, [0.1, 0.1], carry_s=1.0) for name in "AB"]
    assert shown(cut_pipeline(devices)) == [("A", 0, 2)]


def test_memory_limits_a_stage_and_a_shared_constant_counts_once() -> None:
    node_s = [1.0, 1.0, 1.0, 1.0]
    shared: list[list[Weight]] = [[("table", 8)], [("a", 1)], [("b", 1)], [("table", 8)]]
    small = [device("A", node_s, memory_bytes=9), device("B", [9.0] * 4, memory_bytes=99)]
    assert shown(cut_pipeline(small, shared)) == [("A", 0, 2), ("B", 2, 4)] or shown(
        cut_pipeline(small, shared)
    ) == [("B", 0, 2), ("A", 2, 4)]
    assert shown(cut_pipeline([device("A", node_s, memory_bytes=10)], shared)) == [("A", 0, 4)]
    assert cut_pipeline([device("A", node_s, memory_bytes=9)], shared) is None


def test_joined_nodes_stay_together() -> None:
    node_s = [1.0, 1.0, 1.0, 1.0]
    devices = [device("A", node_s), device("B", node_s)]
    assert shown(cut_pipeline(devices)) == [("A", 0, 2), ("B", 2, 4)]
    stages = cut_pipeline(devices, joined=[2])
    assert stages is not None
    assert slowest(stages) == pytest.approx(3.0)
    assert 2 not in {stage.end for stage in stages}


def test_without_nodes_or_devices_there_is_nothing_to_cut() -> None:
    assert cut_pipeline([PipelineDevice("A", (), (0.0,))]) == []
    assert cut_pipeline([]) is None


@pytest.mark.parametrize("unlike", [False, True])
def test_ten_thousand_nodes_are_cut_by_few_passes_over_them(
    unlike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each device is looked at once in each state for each bound, whatever the nodes take."""
    source = random.Random(3)
    node_s = [source.random() for _ in range(10_000)]
    carry_s = tuple(50 * source.random() for _ in range(10_001))
    devices = [
        PipelineDevice(f"D.{n}", tuple(s * (1 + n * unlike) for s in node_s), carry_s)
        for n in range(3)
    ]
    passes: list[float] = []
    reach = pipeline_cut._reach

    def noted(source: Any, kind: Any, bound: float) -> Any:
        passes.append(bound)
        return reach(source, kind, bound)

    monkeypatch.setattr(pipeline_cut, "_reach", noted)
    stages = cut_pipeline(devices)
    bounds = set(passes)
    assert len(bounds) <= 40
    assert len(passes) <= len(bounds) * (12 if unlike else 3)
    assert stages is not None
    assert len(stages) == 3
