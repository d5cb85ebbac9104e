import math

import pytest

from aioinfer.cli.arguments import OptionError
from aioinfer.cli.benchmarking.percentiles import (
    percentile,
    summarize,
    throughput_per_s,
    window_between,
)
from aioinfer.runtime.tracing.durations import Durations
from aioinfer.runtime.tracing.statistics import NetworkStatistics, StageStatistics


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 100, 101])
@pytest.mark.parametrize("number", [1, 10, 33, 50, 90, 99, 100])
def test_a_percentile_is_the_value_at_the_rounded_up_rank(count: int, number: int) -> None:
    ordered = [float(value) for value in range(1, count + 1)]
    assert percentile(ordered, number) == ordered[math.ceil(count * number / 100) - 1]


@pytest.mark.parametrize("number", range(1, 101))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(number: int) -> None:
    ordered = [1.0, 1.0, 2.0, 5.0, 5.0, 5.0, 9.0]
    value = percentile(ordered, number)
    assert sum(item <= value for item in ordered) * 100 >= number * len(ordered)
    below = [item for item in ordered if item < value]
    assert len(below) * 100 < number * len(ordered)


@pytest.mark.parametrize("number", [-1, 0, 101, 1000])
def test_a_percentile_outside_1_to_100_is_refused(number: int) -> None:
    with pytest.raises(OptionError, match=f"1 to 100, not {number}"):
        percentile([1.0], number)


def test_nothing_has_no_percentile_and_no_summary() -> None:
    with pytest.raises(OptionError, match="nothing was measured"):
        percentile([], 50)
    assert summarize([], 50) is None


def test_a_summary_takes_latencies_in_any_order() -> None:
    summary = summarize([4.0, 1.0, 3.0, 2.0], 75)
    assert summary is not None
    assert (summary.count, summary.percentile, summary.chosen_ms) == (4, 75, 3.0)
    assert (summary.min_ms, summary.average_ms, summary.max_ms) == (1.0, 2.5, 4.0)
    assert (summary.p50_ms, summary.p90_ms, summary.p99_ms) == (2.0, 4.0, 4.0)


def test_one_latency_is_every_percentile() -> None:
    summary = summarize([7.0], 1)
    assert summary is not None
    assert {summary.chosen_ms, summary.p50_ms, summary.p90_ms, summary.p99_ms} == {7.0}


def test_throughput_counts_the_items_of_a_batch() -> None:
    assert throughput_per_s(10, 4, 2.0) == 20.0
    assert throughput_per_s(0, 4, 0.0) == 0.0


def stage(name: str, count: int, busy_s: float, queue_s: float) -> StageStatistics:
    service = Durations(count, busy_s, busy_s / 2, ((busy_s / 2, count),))
    return StageStatistics(name, "cpu", count, busy_s, busy_s / count, queue_s / count, service)


def picture(elapsed_s: float, share: float, *stages: StageStatistics) -> NetworkStatistics:
    return NetworkStatistics(
        "net", "CPU", elapsed_s=elapsed_s, stages=stages, busy_shares={"cpu": share}
    )


def test_a_window_leaves_out_what_was_before_it() -> None:
    before = picture(10.0, 0.1, stage("compute", 1, 1.0, 5.0))
    after = picture(14.0, 0.25, stage("compute", 3, 3.5, 5.5), stage("copy", 2, 0.2, 0.0))
    window = window_between(before, after)
    compute, copy = window.stages
    assert (compute.count, compute.busy_s) == (2, 2.5)
    assert compute.mean_service_s == pytest.approx(1.25)
    assert compute.mean_queue_s == pytest.approx(0.25)
    assert (copy.count, copy.mean_service_s) == (2, pytest.approx(0.1))
    assert (copy.service.count, compute.service.max_s) == (2, 1.75)
    assert window.busy_shares == {"cpu": pytest.approx(2.5 / 4)}


def test_a_window_in_which_nothing_ran_has_no_stages() -> None:
    before = picture(10.0, 0.5, stage("compute", 1, 5.0, 0.0))
    assert window_between(before, before).stages == ()
    assert window_between(before, before).busy_shares == {"cpu": 0.0}


def test_a_busy_share_stays_between_0_and_1() -> None:
    before, after = picture(1.0, 1.0), picture(2.0, 0.4)
    assert window_between(before, after).busy_shares == {"cpu": 0.0}
    assert window_between(picture(1.0, 0.0), picture(2.0, 1.0)).busy_shares == {"cpu": 1.0}
