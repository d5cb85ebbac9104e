"""What a request asks of CUDA's driver, counted on one that takes time and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from accelerators.clocked_cupy import ClockedCupy, Event, Stream
from accelerators.cuda_host import MOST_DRIVER_CALLS, MOST_PYTHON_CALLS, core_on, count_calls
from networks.perceptron import INPUTS, perceptron

from aioinfer import Core
from aioinfer.executors import CpuAllowance

COUNT = 20


@pytest.fixture
def cupy() -> ClockedCupy:
    return ClockedCupy()


@pytest.fixture
def core(cupy: ClockedCupy) -> Iterator[Core]:
    with core_on(cupy) as made:
        yield made


def calls_of(network: Any, cupy: ClockedCupy) -> dict[str, float]:
    """Run requests one after the other, and count what each asks for."""
    request = network.create_infer_request()
    for _ in range(COUNT):
        request.infer_sync(INPUTS)
    cupy.counts.clear()
    for _ in range(COUNT):
        request.infer_sync(INPUTS)
    return {name: count / COUNT for name, count in cupy.counts.items()}


def test_no_time_is_asked_for_until_a_trace_is_looked_at(core: Core, cupy: ClockedCupy) -> None:
    network = core.load_network(perceptron(), "CUDA")
    assert "eventElapsedTime" not in calls_of(network, cupy)
    lanes = {span.lane for span in network.trace()}
    assert not lanes & {"CUDA.0 compute", "CUDA.0 upload"}
    before = calls_of(network, cupy)
    assert before["eventElapsedTime"] > 0
    assert "CUDA.0 compute" in {span.lane for span in network.trace()}


def test_what_is_not_timed_is_not_timed_by_a_neighbour(core: Core, cupy: ClockedCupy) -> None:
    traced, other = (core.load_network(perceptron(), "CUDA") for _ in range(2))
    traced.trace()
    assert calls_of(traced, cupy)["eventElapsedTime"] > 0
    assert "eventElapsedTime" not in calls_of(other, cupy)


def test_profiled_runs_have_the_times_of_their_launches(core: Core, cupy: ClockedCupy) -> None:
    network = core.load_network(perceptron(), "CUDA", {"PERF_COUNT": True})
    request = network.create_infer_request()
    request.infer_sync(INPUTS)
    assert [node.real_time_s > 0 for node in request.profiling()]


def test_a_small_request_is_one_launch_and_one_event(core: Core, cupy: ClockedCupy) -> None:
    with core.load_network(perceptron(), "CUDA") as network:
        calls = calls_of(network, cupy)
    assert calls["graphLaunch"] == calls["eventRecord"] == 1
    assert not set(calls) & {"memcpyAsync", "streamWaitEvent", "kernelLaunch", "eventCreate"}
    assert sum(calls.values()) <= MOST_DRIVER_CALLS


LATENCY, THROUGHPUT = ({"PERFORMANCE_HINT": hint} for hint in ("LATENCY", "THROUGHPUT"))


@pytest.mark.parametrize(
    ("config", "cpu_count", "quota", "sleeps"),
    [
        (THROUGHPUT, 16, None, True),
        (LATENCY, 4, None, False),
        (LATENCY, 3, None, True),
        (LATENCY, 16, 4.0, False),
        (LATENCY, 16, 3.5, True),
        ({**LATENCY, "CUDA_SPIN_WAIT": "NO"}, 16, None, True),
        ({**THROUGHPUT, "CUDA_SPIN_WAIT": "YES"}, 1, None, False),
    ],
)
def test_a_network_whose_runs_are_spun_for_leaves_its_neighbours_asleep(
    core: Core,
    monkeypatch: pytest.MonkeyPatch,
    config: Any,
    cpu_count: int,
    quota: Any,
    sleeps: Any,
) -> None:
    allowance = CpuAllowance(tuple(range(cpu_count)), quota)
    monkeypatch.setattr("aioinfer.backends.cuda.plugin.allowed_cpus", lambda: allowance)
    monkeypatch.setattr("aioinfer.backends.cuda.cupy_queue._LONGEST_SPIN_NS", 10**12)
    recorded = list[bool]()
    record = Event.record

    def note(event: Event, stream: Stream) -> None:
        recorded.append(event.blocks)
        record(event, stream)

    networks = [core.load_network(perceptron(), "CUDA", given) for given in (config, THROUGHPUT)]
    requests = [network.create_infer_request() for network in networks]
    for request in requests:
        request.infer_sync(INPUTS)
    monkeypatch.setattr(Event, "record", note)
    for request in requests * 2:
        request.infer_sync(INPUTS)
    assert recorded == [sleeps, True] * 2


def test_a_request_calls_few_functions_of_ours() -> None:
    counts = count_calls()
    assert counts["driver_calls"] <= MOST_DRIVER_CALLS
    assert counts["python_calls"] <= MOST_PYTHON_CALLS
