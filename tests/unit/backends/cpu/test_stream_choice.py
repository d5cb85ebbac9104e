"""How CPUs are divided among streams."""

from __future__ import annotations

from typing import Any

import pytest

from aioinfer.backends.cpu.properties import PROPERTIES
from aioinfer.backends.cpu.stream_choice import streams_config
from aioinfer.executors import CpuAllowance
from aioinfer.runtime.properties.properties import STANDARD_PROPERTIES, Configuration

pytestmark = pytest.mark.needs_no_library

# CPUs, what was set -> streams, threads of each
CASES: list[tuple[int, dict[str, Any], int, int]] = [
    (1, {}, 1, 1),
    (8, {}, 1, 8),
    (8, {"PERFORMANCE_HINT": "LATENCY"}, 1, 8),
    (8, {"PERFORMANCE_HINT": "THROUGHPUT"}, 8, 1),
    (1, {"PERFORMANCE_HINT": "THROUGHPUT"}, 1, 1),
    (8, {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"}, 8, 1),
    (8, {"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 1}, 1, 8),
    (8, {"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 3}, 3, 2),
    (8, {"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 99}, 8, 1),
    (8, {"INFERENCE_NUM_THREADS": 3}, 1, 3),
    (8, {"INFERENCE_NUM_THREADS": 3, "PERFORMANCE_HINT": "THROUGHPUT"}, 3, 1),
    (2, {"INFERENCE_NUM_THREADS": 6}, 1, 6),
    (8, {"NUM_STREAMS": 1}, 1, 8),
    (8, {"NUM_STREAMS": 2}, 2, 4),
    (8, {"NUM_STREAMS": 3}, 3, 2),
    (2, {"NUM_STREAMS": 5}, 5, 1),
    (8, {"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2}, 2, 1),
    (8, {"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 1}, 2, 1),
    (8, {"NUM_STREAMS": 2, "PERFORMANCE_HINT": "THROUGHPUT"}, 2, 4),
    (8, {"NUM_STREAMS": "AUTO"}, 1, 8),
]


def allowance(cpus: int, quota: float | None = None) -> CpuAllowance:
    return CpuAllowance(tuple(range(cpus)), quota)


def config(values: dict[str, Any]) -> Configuration:
    return Configuration("CPU", (*STANDARD_PROPERTIES, *PROPERTIES)).with_values(values)


@pytest.mark.parametrize(("cpus", "values", "streams", "threads"), CASES)
def test_streams_and_threads(cpus: int, values: dict[str, Any], streams: int, threads: int) -> None:
    chosen = streams_config(config(values), allowance(cpus), "CPU.0")
    assert (chosen.stream_count, chosen.thread_count) == (streams, threads)
    assert chosen.name == "CPU.0"
    assert not chosen.pinning


@pytest.mark.parametrize("cpus", range(1, 20))
@pytest.mark.parametrize("streams", range(1, 20))
def test_cpus_are_never_given_out_twice_while_there_are_enough(cpus: int, streams: int) -> None:
    chosen = streams_config(config({"NUM_STREAMS": streams}), allowance(cpus), "CPU.0")
    assert chosen.thread_count >= 1
    if streams <= cpus:
        assert streams * chosen.thread_count <= cpus
        assert streams * (chosen.thread_count + 1) > cpus


def test_pinning_is_asked_for() -> None:
    assert streams_config(config({"ENABLE_CPU_PINNING": True}), allowance(4), "CPU.0").pinning


@pytest.mark.parametrize(
    ("quota", "values", "streams", "threads"),
    [
        (2.5, {}, 1, 2),
        (0.5, {}, 1, 1),
        (1.9, {}, 1, 1),
        (2.5, {"PERFORMANCE_HINT": "THROUGHPUT"}, 3, 1),
        (5.0, {"NUM_STREAMS": 2}, 2, 2),
        (1.5, {"INFERENCE_NUM_THREADS": 4}, 1, 4),
    ],
)
def test_a_part_of_a_cpu_is_worth_a_stream_and_no_member_of_a_team(
    quota: float, values: dict[str, Any], streams: int, threads: int
) -> None:
    chosen = streams_config(config(values), allowance(8, quota), "CPU.0")
    assert (chosen.stream_count, chosen.thread_count) == (streams, threads)


@pytest.mark.parametrize(
    ("quota", "values", "streams", "threads"),
    [
        (2.5, {}, 1, 3),
        (0.5, {}, 1, 1),
        (1.5, {}, 1, 2),
        (2.5, {"PERFORMANCE_HINT": "THROUGHPUT"}, 3, 1),
        (3.5, {"NUM_STREAMS": 2}, 2, 2),
        (1.5, {"INFERENCE_NUM_THREADS": 4}, 1, 4),
    ],
)
def test_a_team_that_can_follow_the_quota_has_a_thread_for_a_part_of_a_cpu(
    quota: float, values: dict[str, Any], streams: int, threads: int
) -> None:
    chosen = streams_config(config(values), allowance(8, quota), "CPU.0", can_follow_quota=True)
    assert (chosen.stream_count, chosen.thread_count) == (streams, threads)
