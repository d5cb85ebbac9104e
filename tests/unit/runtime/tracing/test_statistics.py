"""The numbers of a network: every request under one outcome, shares between 0 and 1, frozen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    RequestBusyError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.executors import NOW, Lane, Ready
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.runs.bindings import Bindings
from aioinfer.runtime.tensors.tensor import Port
from aioinfer.runtime.tracing.arrivals import EXACT_BATCH_SIZES, Arrivals
from aioinfer.runtime.tracing.durations import COUNT_AT
from aioinfer.runtime.tracing.recorder import (
    StageTally,
    busy_shares,
)
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.held_runs import X, started
from unit.runtime.inline_plugin import InlinePlugin
from unit.runtime.models import tiny_model

WAIT_S = 20.0  # a bound for what must happen; never slept through


def test_every_request_is_counted_under_its_outcome(core: aioinfer.Core, held: MockDevices) -> None:
    held[0].slot_count = 9
    network = core.load_network(tiny_model(), "MOCK.0")
    clock = network.clock = VirtualTimer()
    device = held[0].held
    requests = [network.create_infer_request() for _ in range(9)]
    for request in requests[:5]:
        request.start_async(X)
    device.release(3)
    device.fail(ValueError("planted"))
    device.fail(ValueError("planted"))
    requests[5].start_async(X)
    requests[5].cancel()
    for request in requests[6:8]:
        request.start_async(X, deadline_s=2.0)
    clock.advance(2.0)
    requests[8].start_async(X)
    network.abort()
    device.release(4)
    network.close()
    statistics = network.statistics()
    assert statistics.finished_request_count == 3
    assert statistics.failed_request_count == 2
    assert statistics.cancelled_request_count == 1
    assert statistics.expired_request_count == 2
    assert statistics.aborted_request_count == 1
    assert (statistics.waiting_run_count, statistics.running_run_count) == (0, 0)
    for request, error in zip(
        requests[3:],
        [ValueError] * 2 + [RequestCancelledError] + [DeadlineExceededError] * 2 + [ClosedError],
        strict=True,
    ):
        with pytest.raises(error):
            request.wait()


def test_what_is_stopped_is_counted_when_its_caller_is_answered(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    clock = network.clock = VirtualTimer()
    requests = [network.create_infer_request() for _ in range(4)]
    for request, deadline_s in zip(requests, (None, 2.0, 2.0, None), strict=True):
        request.start_async(X, deadline_s=deadline_s)
    requests[0].cancel()  # runs
    requests[3].cancel()  # waits for a slot
    clock.advance(2.0)
    before = network.statistics()
    assert (before.cancelled_request_count, before.expired_request_count) == (2, 2)
    held[0].held.release(2)
    after = network.statistics()
    assert after.latencies == before.latencies
    assert {outcome: times.count for outcome, times in after.latencies.items()} == {
        "cancelled": 2,
        "expired": 2,
    }


def test_a_run_whose_launch_raises_is_counted_as_failed(
    core: aioinfer.Core, held: MockDevices
) -> None:
    class NoThread(VirtualTimer):
        def call_at(self, at_s: float, call: Callable[[], None]) -> Any:
            raise DeviceError("no thread can be started")

    network = core.load_network(tiny_model(), "MOCK.0")
    network.clock = NoThread()
    with pytest.raises(DeviceError, match="no thread"):
        network.create_infer_request().start_async(X, deadline_s=2.0)
    with pytest.raises(DeviceError, match="no thread"):
        asyncio.run(network.infer(X, deadline_s=2.0))
    assert network.statistics().failed_request_count == 2


@pytest.mark.parametrize("drain", [True, False])
def test_a_run_that_a_close_overtakes_before_it_is_let_in_is_not_counted(
    core: aioinfer.Core, held: MockDevices, drain: bool
) -> None:
    class Closing(VirtualTimer):
        def call_at(self, at_s: float, call: Callable[[], None]) -> Any:
            network.close(drain=drain)
            return super().call_at(at_s, call)

    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    network.clock = Closing()
    with pytest.raises(ClosedError):
        request.start_async(X, deadline_s=2.0)
    assert network.statistics().latencies == {}
    assert network.statistics().aborted_request_count == 0


def test_a_latency_is_from_arrival_to_answer_and_includes_the_wait_for_a_slot(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = started(network, 5)
    now = network.statistics()
    assert (now.slot_wait.count, now.slot_wait.max_s) == (2, 0.0), "three wait"
    assert now.latency.count == 0
    for _ in requests:
        held[0].held.release()
    now = network.statistics()
    assert now.slot_wait.count == now.latency.count == 5
    assert now.slot_wait.count_within(0.0) == 2
    assert now.slot_wait.max_s <= now.slot_wait.sum_s <= now.latency.sum_s
    assert sorted([request.latency_s for request in requests])[-1] == now.latency.max_s
    assert now.latency.sum_s == pytest.approx(sum(request.latency_s for request in requests))
    assert all(stage.service.max_s < now.latency.max_s for stage in now.stages)


def test_a_run_that_is_stopped_while_it_waits_has_waited(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = started(network, 3)
    requests[2].cancel()
    now = network.statistics()
    assert (now.slot_wait.count, now.slot_wait.count_within(0.0)) == (3, 2)
    assert now.slot_wait.max_s > 0
    assert now.latencies["cancelled"].max_s > 0
    held[0].held.release(2)


@pytest.mark.parametrize("threshold_us", [0, 100_000])
@pytest.mark.parametrize("batch", ["open", "fixed"])
async def test_latencies_of_many_runs_are_all_counted(
    core: aioinfer.Core, threshold_us: int, batch: str
) -> None:
    model = tiny_model()
    if batch == "fixed":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    core.register_plugin("INLINE", InlinePlugin)
    network = core.load_network(model, "INLINE", {"INLINE_THRESHOLD_US": threshold_us})
    request, count = network.create_infer_request(), COUNT_AT + 7
    for _ in range(count):
        await request.infer(X)
    now = network.statistics()
    assert now.finished_request_count == now.latency.count == now.slot_wait.count == count
    assert 0 < now.latency.p50_s <= now.latency.max_s
    assert now.slot_wait.p50_s == 0.0


def test_the_parts_of_a_network_tell_what_waits_on_their_devices(
    core: aioinfer.Core, held: MockDevices
) -> None:
    held[1].slot_count = 1
    config = {"AFFINITY": {"relu": "MOCK.0", "add": "MOCK.1"}}
    network = core.load_network(tiny_model(), "HETERO:MOCK.0,MOCK.1", config, name="cut")
    for _ in range(3):
        network.create_infer_request().start_async(X)
    held[0].held.release(2)
    now = network.statistics()
    first, second = now.parts
    assert [(part.network, part.device) for part in now.parts] == [
        ("cut.subgraph0", "MOCK.0"),
        ("cut.subgraph1", "MOCK.1"),
    ]
    assert (first.running_run_count, first.waiting_run_count) == (1, 0)
    assert (second.running_run_count, second.waiting_run_count) == (1, 1)
    assert (now.running_run_count, now.waiting_run_count) == (3, 0)
    held[0].held.release()
    held[1].held.release(3)
    first, second = network.statistics().parts
    assert (second.slot_wait.count, second.slot_wait.count_within(0.0)) == (3, 1)
    assert second.finished_request_count == 0, "the requests are those of the whole"


def test_a_core_shows_its_open_networks_once(core: aioinfer.Core, held: MockDevices) -> None:
    assert core.statistics().networks == ()
    first = core.load_network(tiny_model(), "AUTO:MOCK.0", name="old")
    cut = core.load_network(tiny_model(), "HETERO:MOCK.0,MOCK.1")
    again = core.load_network(tiny_model(), "MOCK.0", name="old")
    other = core.load_network(tiny_model(), "MOCK.1", name="old")

    def shown() -> list[tuple[str, str, int]]:
        return [(one.network, one.device, one.copy) for one in core.statistics().networks]

    whole = ("tiny", "HETERO:MOCK.0,MOCK.1", 1)
    assert shown() == [("old", "MOCK.0", 1), whole, ("old", "MOCK.0", 2), ("old", "MOCK.1", 1)]
    first.close()
    newest = core.load_network(tiny_model(), "MOCK.0", name="old")
    assert shown() == [whole, ("old", "MOCK.0", 2), ("old", "MOCK.1", 1), ("old", "MOCK.0", 1)]
    for network in (cut, again, other, newest):
        network.close()
    assert core.statistics().networks == ()
    core.close()
    assert core.statistics().networks == ()


def test_a_core_tells_how_many_tasks_wait_for_threads(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE", {"NUM_STREAMS": 1})
    executor = network.admission._idle[0].stages[-1].executor
    is_held, go_on = threading.Event(), threading.Event()

    def hold(_lane: Lane) -> Ready:
        is_held.set()
        assert go_on.wait(WAIT_S)
        return NOW

    executor.run(hold, NOW, lambda _ready, _error: None)
    try:
        assert is_held.wait(WAIT_S)
        network.create_infer_request().start_async(X)
        assert core.statistics().queued_task_counts[executor.name] == 1
    finally:
        go_on.set()


def test_what_never_started_is_not_counted(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    with pytest.raises(TensorError):
        request.start_async({"x": None})
    request.start_async(X)
    with pytest.raises(RequestBusyError):
        request.start_async(X)
    held[0].held.release()
    assert network.statistics().finished_request_count == 1
    assert network.statistics().failed_request_count == 0


def test_waiting_and_running_are_told_apart(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    for request in [network.create_infer_request() for _ in range(5)]:
        request.start_async(X)
    statistics = network.statistics()
    assert (statistics.running_run_count, statistics.waiting_run_count) == (2, 3)


def test_a_network_that_never_ran_has_no_shares(core: aioinfer.Core, held: MockDevices) -> None:
    statistics = core.load_network(tiny_model(), "MOCK.0").statistics()
    assert statistics.elapsed_s == 0
    assert statistics.busy_shares == {}
    assert statistics.stages == ()


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"])
async def test_busy_shares_lie_between_0_and_1(core: aioinfer.Core, device: str) -> None:
    network = core.load_network(tiny_model(), device)
    await asyncio.gather(*(network.infer(X) for _ in range(100)))
    statistics = network.statistics()
    assert statistics.elapsed_s > 0
    assert statistics.busy_shares
    for executor, share in statistics.busy_shares.items():
        assert 0 <= share <= 1, executor
    assert {stage.executor for stage in statistics.stages} == set(statistics.busy_shares)
    for stage in statistics.stages:
        assert stage.count == 100
        assert 0 <= stage.mean_service_s <= stage.busy_s <= statistics.elapsed_s
        assert stage.mean_queue_s >= 0


def test_shares_are_of_all_lanes_of_an_executor() -> None:
    tallies = [
        StageTally("a", "CPU", lane_count=2, count=1, busy_ns=300),
        StageTally("b", "CPU", lane_count=2, count=1, busy_ns=500),
        StageTally("c", "copy", lane_count=1, count=1, busy_ns=5000),
    ]
    assert busy_shares(tallies, 1000, {"CPU": 2, "copy": 1}) == {"CPU": 0.4, "copy": 1.0}
    assert busy_shares(tallies, 0, {}) == {}


def test_a_picture_is_frozen_and_later_runs_leave_it_alone(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    before = network.statistics()
    request.start_async(X)
    held[0].held.release()
    assert before.finished_request_count == 0
    after = network.statistics()
    assert after.finished_request_count == 1
    with pytest.raises(FrozenInstanceError):
        after.finished_request_count = 7  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        after.stages[0].count = 7  # type: ignore[misc]


def test_stages_have_percentiles_of_service_and_queue(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    for _ in range(5):
        request.start_async(X)
        held[0].held.release()
    (stage,) = network.statistics().stages
    for durations, mean_s in (
        (stage.service, stage.mean_service_s),
        (stage.queue, stage.mean_queue_s),
    ):
        assert durations.count == stage.count == 5
        assert durations.mean_s == pytest.approx(mean_s)
        assert 0 < durations.p50_s <= durations.p90_s <= durations.p99_s <= durations.max_s


def test_batch_sizes_are_counted_by_leading_length(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    assert network.statistics().batch_sizes == {}
    for length in (4, 1, 4, 4):
        request = network.create_infer_request()
        request.start_async(np.zeros((length, 3), np.float32))
        held[0].held.release()
    request.start_async(np.zeros((9, 3), np.float32))
    request.cancel()
    held[0].held.release()
    sizes = network.statistics().batch_sizes
    assert list(sizes.items()) == [(1, 1), (4, 3), (9, 1)], "smallest first, cancelled or not"


def test_more_runs_than_are_counted_at_once_are_all_counted() -> None:
    arrivals = Arrivals()
    arrivals.count_batches_of([Port("x", TensorType(DType.FLOAT32, ("n", 3)))])
    bindings = Bindings({"x": X}, (0, 1))
    for _ in range(3000):
        arrivals.arrive(bindings.inputs)
    assert len(arrivals._shapes) < 1024
    assert arrivals.batch_sizes() == {1: 3000}


def test_any_number_of_batch_sizes_takes_bounded_room() -> None:
    arrivals = Arrivals()
    arrivals.count_batches_of([Port("x", TensorType(DType.FLOAT32, ("n",)))])
    exact = range(2, 2 + EXACT_BATCH_SIZES)
    for size in (*exact, 0, 1, 5000, 5001, 4096, 3):
        arrivals.arrive({"x": np.zeros(size, np.int8)})
    sizes = arrivals.batch_sizes()
    assert [size for size in sizes if size not in exact] == [0, 1, 4096]
    assert (sizes[0], sizes[1], sizes[2], sizes[3], sizes[4096]) == (1, 1, 1, 2, 3)


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ([(2, 3)], {2: 1}),
        ([(), ("n", 3)], {7: 1}),
        ([None, ("n",)], {7: 1}),
        ([()], {}),
        ([], {}),
    ],
    ids=["fixed", "a scalar first", "of any rank first", "a scalar", "no input"],
)
def test_the_batch_size_is_that_of_the_first_input_with_dimensions(
    shapes: list[tuple[int | str, ...] | None], sizes: dict[int, int]
) -> None:
    ports = [
        Port(f"x{place}", TensorType(DType.FLOAT32, shape)) for place, shape in enumerate(shapes)
    ]
    arrivals = Arrivals()
    arrivals.count_batches_of(ports)
    arrays = {port.name: np.zeros((7, 3) if port.shape else (), np.float32) for port in ports}
    if arrivals.has_open_batch:
        arrivals.arrive(arrays)
    else:
        arrivals.fixed_count += 1
    assert arrivals.batch_sizes() == sizes
