"""Numbers of several networks are added up as if one network had counted them all."""

from __future__ import annotations

import dataclasses

import numpy as np

from aioinfer.runtime.tracing.durations import NO_DURATIONS, DurationCounts, Durations
from aioinfer.runtime.tracing.recorder import StageTally
from aioinfer.runtime.tracing.statistics import (
    DeviceStatistics,
    NetworkStatistics,
    PlanStatistics,
    StageStatistics,
    statistics_of,
)
from aioinfer.runtime.tracing.totals import (
    Numbers,
    merged_durations,
    merged_parts,
    merged_tallies,
)

FEW, MANY = [3, 70_000, 0], [5, 5, 900_000_000, 70_001]


def counted(durations_ns: list[int]) -> Durations:
    counts = DurationCounts()
    counts.add(np.array(durations_ns, np.int64))
    return counts.picture()


def tally(durations_ns: list[int], stage: str = "compute", lanes: int = 1) -> StageTally:
    taken = counted(durations_ns)
    busy_ns = sum(durations_ns)
    return StageTally(stage, "CPU", lanes, len(durations_ns), busy_ns, 2 * busy_ns, taken, taken)


def part(durations_ns: list[int], device: str = "CPU", copy: int = 1) -> NetworkStatistics:
    taken, count = counted(durations_ns), len(durations_ns)
    return NetworkStatistics(
        network="net",
        device=device,
        copy=copy,
        finished_request_count=count,
        latencies={"finished": taken},
        slot_wait=taken,
        waiting_run_count=1,
        running_run_count=2,
        elapsed_s=2.0 * count,
        stages=(statistics_of(tally(durations_ns)),),
        busy_shares={"CPU": 0.5},
        plans=PlanStatistics(1, 2, 3.0, 4, 5, 6, 7),
        batch_sizes={1: count, count: 1},
        group_sizes={2: 1},
        copied_bytes={"compute": {"host": 10}},
        devices=(DeviceStatistics("CPU.0", True, count, 1, 1, 1, 0.5),),
    )


def test_durations_are_as_if_counted_together() -> None:
    both = merged_durations([counted(FEW), NO_DURATIONS, counted(MANY)])
    together = counted(FEW + MANY)
    assert both.buckets == together.buckets
    assert (both.count, both.max_s) == (together.count, together.max_s)
    assert both.p50_s == together.p50_s
    assert abs(both.sum_s - together.sum_s) < 1e-12
    assert merged_durations([]) == NO_DURATIONS


def test_stages_of_one_name_and_executor_become_one() -> None:
    merged = merged_tallies([tally(FEW, lanes=2), tally(FEW, "upload"), tally(MANY)])
    assert [(item.stage, item.count, item.lane_count) for item in merged] == [
        ("compute", 7, 2),
        ("upload", 3, 1),
    ]
    assert merged[0].busy_ns == sum(FEW + MANY)
    assert merged[0].service.buckets == counted(FEW + MANY).buckets
    assert merged_tallies([merged[1]]) == [merged[1]]


def test_parts_of_one_label_become_one() -> None:
    both, other = merged_parts([part(FEW), part(MANY), part(FEW, copy=2)])
    assert other == part(FEW, copy=2)
    assert (both.finished_request_count, both.running_run_count) == (7, 4)
    assert both.latency.buckets == both.slot_wait.buckets == counted(FEW + MANY).buckets
    assert both.elapsed_s == 14.0
    assert both.busy_shares == {"CPU": 0.5}
    assert both.plans == PlanStatistics(2, 4, 6.0, 8, 10, 12, 14)
    assert both.batch_sizes == {1: 7, 3: 1, 4: 1}
    assert both.group_sizes == {2: 2}
    assert both.copied_bytes == {"compute": {"host": 20}}
    assert both.devices == (DeviceStatistics("CPU.0", True, 7, 2, 2, 2, 0.5),)
    (stage,) = both.stages
    expected = statistics_of(tally(FEW + MANY))
    assert_close(stage, expected)


def assert_close(stage: StageStatistics, expected: StageStatistics) -> None:
    assert (stage.count, stage.service.buckets) == (expected.count, expected.service.buckets)
    for key in ("busy_s", "mean_service_s", "mean_queue_s"):
        np.testing.assert_allclose(getattr(stage, key), getattr(expected, key), rtol=1e-12)


def test_of_what_is_closed_the_counts_stay_and_nothing_runs() -> None:
    inner = part(FEW)
    outer = dataclasses.replace(part(MANY), parts=(inner,))
    numbers = Numbers((tally(FEW),), {}, PlanStatistics(1, 2, 3.0, 4, 5, 6, 7), (outer,))
    closed = numbers.of_closed()
    assert closed.tallies == numbers.tallies
    assert closed.plans == PlanStatistics(0, 2, 3.0, 4, 5, 6, 0)
    for item in (closed.parts[0], closed.parts[0].parts[0]):
        assert item.running_run_count == item.waiting_run_count == 0
        assert item.finished_request_count > 0
        assert item.plans.kept_count == 0
        assert not item.devices[0].is_in_use
        assert item.devices[0].running_run_count == 0


def test_every_field_of_a_picture_is_added_up_or_said_by_the_first() -> None:
    """A new field has to be thought of: here it is missed."""
    first_says = {"network", "device", "copy"}
    both = merged_parts([part(FEW), dataclasses.replace(part(FEW), parts=(part(FEW),))])[0]
    alone = part(FEW)
    same = {
        field.name
        for field in dataclasses.fields(NetworkStatistics)
        if getattr(both, field.name) == getattr(alone, field.name)
    }
    zero = {f"{name}_request_count" for name in ("failed", "cancelled", "expired", "aborted")}
    assert same == first_says | zero | {"refused_request_count", "busy_shares"}
