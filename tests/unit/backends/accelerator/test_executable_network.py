"""Runs on a fake driver, in every order that a device may choose; and on a real one."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.executable_network import AcceleratorNetwork
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import (
    DeviceError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.executors import NOW, Lane, Ready
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import TOOK_NS, FakeDriver
from unit.backends.accelerator.serving import negating, pump

THROUGHPUT = {"PERFORMANCE_HINT": "THROUGHPUT"}
X = np.arange(12, dtype=np.float32).reshape(3, 4)
WAIT_S = 20.0
CLOCKS_NS = 10_000_000
"""More than what two readings of two clocks can be apart."""
LANES = ("FAKE.0 upload", "FAKE.0 compute", "FAKE.0 download")


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(is_eager=False)


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_right_in_every_order_of_the_queues(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    network = fake_core.load_network(negating(X), "FAKE")
    requests = [network.create_infer_request() for _ in range(5)]
    for number, request in enumerate(requests):
        request.start_async(X + number)
    pump(driver.contexts[0], *requests, seed=seed)
    for number, request in enumerate(requests):
        np.testing.assert_array_equal(request.results["y"], -(X + number))


def test_the_next_upload_comes_before_the_first_download(
    driver: FakeDriver, fake_core: Core
) -> None:
    network = fake_core.load_network(negating(X), "FAKE")
    requests = [network.create_infer_request() for _ in range(2)]
    for request in requests:
        request.start_async(X)
    (context,) = driver.contexts
    upload = next(queue for queue in context.queues if queue.name.endswith("upload"))
    assert [event.label for event in upload.commands] == ["write", "marker", "write", "marker"]
    context.run_all()
    assert all(request.wait(WAIT_S) for request in requests)


@pytest.mark.parametrize("seed", range(5))
def test_the_trace_shows_what_the_queues_did_side_by_side(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    network = fake_core.load_network(negating(X), "FAKE", THROUGHPUT)
    requests = [network.create_infer_request() for _ in range(3)]
    for request in requests:
        request.start_async(X)
    driver.contexts[0].run_all(random.Random(seed))
    assert all(request.wait(WAIT_S) for request in requests)
    trace = network.trace()
    works = {(span.run_id, span.lane): span for span in trace if span.lane in LANES}
    assert len(works) == 9
    for first, second in pairwise([request.id for request in requests]):
        for earlier, later in pairwise(LANES):
            own, next_one = works[first, later], works[second, earlier]
            assert works[first, earlier].ended_ns == own.queued_ns <= own.started_ns
            assert max(own.started_ns, next_one.started_ns) + TOOK_NS // 2 < min(
                own.ended_ns, next_one.ended_ns
            ), "the run behind is a stage behind"
    shares = network.statistics().busy_shares
    assert all(shares[lane] > shares[f"{lane} host"] for lane in LANES)


def test_a_device_that_knows_no_times_serves_requests_and_has_no_spans(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    driver.untimed |= {"upload: write", "compute: launch", "download: read"}
    with fake_core.load_network(negating(X), "FAKE") as network:
        np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], -X)
        lanes = {span.lane for span in network.trace()}
        assert lanes >= {f"{lane} host" for lane in LANES}
        assert not lanes & set(LANES)


def test_an_output_that_is_copied_by_the_host_has_its_download_in_the_trace(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    with fake_core.load_network(negating(X), "FAKE") as network:
        request, memory = network.create_infer_request(), np.zeros((4, 3), np.float32).T
        request.set_tensor("y", memory)
        request.infer_sync(X)
        np.testing.assert_array_equal(memory, -X)
        assert {span.lane for span in network.trace()} >= set(LANES)


@pytest.mark.parametrize("command", ["upload: write", "compute: launch", "download: read"])
def test_a_command_that_fails_fails_its_run_alone(
    command: str, driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    with fake_core.load_network(negating(X), "FAKE") as network:
        driver.fails[command] = DriverError(ErrorKind.OTHER, "it broke")
        request = network.create_infer_request()
        with pytest.raises(DeviceError, match="it broke"):
            request.infer_sync(X)
        np.testing.assert_array_equal(request.infer_sync(X)["y"], -X)


def test_a_lost_device_refuses_runs_and_loads(driver: FakeDriver, fake_core: Core) -> None:
    driver.is_eager = True
    with fake_core.load_network(negating(X), "FAKE") as network:
        driver.fails["compute: launch"] = DriverError(ErrorKind.LOST, "DEVICE_NOT_AVAILABLE")
        request = network.create_infer_request()
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"FAKE\.0 is lost .*DEVICE_NOT_AVAILABLE"):
                request.infer_sync(X)
        with pytest.raises(DeviceError, match="is lost"):
            fake_core.load_network(negating(X), "FAKE")


def test_a_lost_device_gets_no_command_of_a_run(driver: FakeDriver, fake_core: Core) -> None:
    network = fake_core.load_network(negating(X), "FAKE")
    (context,) = driver.contexts
    assert isinstance(network, AcceleratorNetwork)
    network.opened.health.translate(DriverError(ErrorKind.LOST, "unplugged"), "computing")
    before = driver.command_count
    with pytest.raises(DeviceError, match="is lost"):
        network.create_infer_request().infer_sync(X)
    assert (driver.command_count, context.run_all()) == (before, None)


@pytest.mark.usefixtures("hands_copies_over")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_large_input_is_copied_on_the_executor_of_copies_and_its_copy_is_in_the_trace(
    dynamic: bool, driver: FakeDriver, fake_core: Core
) -> None:
    large = np.ones((130, 130), np.float32)
    network = fake_core.load_network(negating(large, dynamic=dynamic), "FAKE")
    request = network.create_infer_request()
    request.start_async(large)
    pump(driver.contexts[0], request)
    np.testing.assert_array_equal(request.results["y"], -large)
    fill = [span for span in network.trace() if span.stage == "fill"]
    assert [span.lane.rsplit(".", 1)[0] for span in fill] == ["FAKE.0 copies"]
    (upload,) = [span for span in network.trace() if span.lane == "FAKE.0 upload host"]
    assert upload.started_ns >= fill[0].ended_ns
    small = np.ones((3, 4), np.float32)
    if dynamic:
        request.start_async(small)
        pump(driver.contexts[0], request)
        assert len([span for span in network.trace() if span.stage == "fill"]) == 1


@pytest.mark.usefixtures("hands_copies_over")
def test_a_run_stopped_while_its_input_is_copied_ends_when_the_copy_has(
    driver: FakeDriver, fake_core: Core
) -> None:
    large = np.ones((130, 130), np.float32)
    network = fake_core.load_network(negating(large), "FAKE")
    entered, go_on = threading.Event(), threading.Event()

    def hold(_lane: Lane) -> Ready:
        entered.set()
        assert go_on.wait(WAIT_S)
        return NOW

    assert isinstance(network, AcceleratorNetwork)
    copies = network.copy_executor
    copies.run(hold, NOW, lambda _ready, _error: None)
    assert entered.wait(WAIT_S)
    request = network.create_infer_request()
    request.start_async(large)
    request.cancel()
    assert not request.wait(0.0)
    go_on.set()
    with pytest.raises(RequestCancelledError):
        request.wait(WAIT_S)
    assert driver.contexts[0].done.count("upload: write") == 0
    request.start_async(large)
    pump(driver.contexts[0], request)
    np.testing.assert_array_equal(request.results["y"], -large)


def test_a_model_that_does_not_fit_is_refused_before_memory_is_taken(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    wide = {"x": np.zeros((60_000,), np.float32)}  # two of 240 kB, in each of three slots
    with pytest.raises(
        DeviceError, match=r"3 slots of 'g' needs 2 MiB on FAKE\.0, which has 1 MiB"
    ):
        fake_core.load_network(model_of([operator("Neg", "x")], wide), "FAKE", THROUGHPUT)
    (context,) = driver.contexts
    assert [memory for memory in context.buffers if not memory.is_released] == []


@pytest.mark.parametrize(
    ("config", "slots"), [({}, 2), (THROUGHPUT, 3), ({"PERFORMANCE_HINT_NUM_REQUESTS": 1}, 1)]
)
def test_hints_decide_how_many_runs_are_in_flight(
    driver: FakeDriver, fake_core: Core, config: dict[str, Any], slots: int
) -> None:
    driver.is_eager = True
    with fake_core.load_network(negating(X), "FAKE", config) as network:
        assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == slots


def test_a_kernel_that_does_not_build_is_named(driver: FakeDriver, fake_core: Core) -> None:
    driver.build_error = DriverError(ErrorKind.OTHER, "error: no such function")
    with pytest.raises(DeviceError, match=r"cannot build the kernel 'fused_\w+'.*no such function"):
        fake_core.load_network(negating(X), "FAKE")


def test_a_closed_network_gives_all_memory_back(driver: FakeDriver, fake_core: Core) -> None:
    driver.is_eager = True
    fake_core.load_network(negating(X), "FAKE").close()
    assert all(memory.is_released for memory in driver.contexts[0].buffers)


def test_a_steady_state_takes_no_memory(driver: FakeDriver, fake_core: Core) -> None:
    driver.is_eager = True
    with fake_core.load_network(negating(X, dynamic=True), "FAKE") as network:
        requests = [network.create_infer_request() for _ in range(3)]
        for request in requests:
            request.infer_sync(X)
        count = len(driver.contexts[0].buffers)
        for request in requests * 3:
            request.infer_sync(X)
        assert len(driver.contexts[0].buffers) <= count + 2  # other slots are bound when first used


def test_shapes_take_turns(core: Core) -> None:
    with core.load_network(negating(X, dynamic=True), "OPENCL") as network:
        request = network.create_infer_request()
        for rows in (3, 500, 1, 3, 500):
            given = np.random.default_rng(rows).random((rows, 4), np.float32)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], -given)


def test_inputs_and_outputs_in_any_memory_order(core: Core) -> None:
    with core.load_network(negating(X), "OPENCL") as network:
        request = network.create_infer_request()
        memory = np.zeros((4, 3), np.float32).T
        request.set_tensor("y", memory)
        request.infer_sync(np.asfortranarray(X))
        np.testing.assert_array_equal(memory, -X)
        assert request.results["y"] is memory


def test_a_large_result_that_is_gone_leaves_its_memory_to_a_later_one(core: Core) -> None:
    with core.load_network(negating(X, dynamic=True), "OPENCL") as network:
        request, given = network.create_infer_request(), np.ones((1000, 100), np.float32)
        first = request.infer_sync(given)["y"]
        address = first.ctypes.data
        second = request.infer_sync(2 * given)["y"]
        assert second.ctypes.data != address
        np.testing.assert_array_equal(first, -given)
        del first
        later = [request.infer_sync(given * k)["y"] for k in (3, 4)]
        assert address in [array.ctypes.data for array in later]
        np.testing.assert_array_equal(second, -2 * given)


def test_memory_that_does_not_fit_is_refused(core: Core) -> None:
    with core.load_network(negating(X, dynamic=True), "OPENCL") as network:
        request = network.create_infer_request()
        request.set_tensor("y", np.zeros((2, 4), np.float32))
        with pytest.raises(TensorError, match="bind one that fits"):
            request.infer_sync(X)


def test_profiling_has_an_entry_for_each_launch(core: Core) -> None:
    nodes = [operator("Softmax", "x", outputs=["s"]), operator("Transpose", "s")]
    config = {"PERF_COUNT": True}
    with core.load_network(model_of(nodes, {"x": X}), "OPENCL", config) as network:
        request = network.create_infer_request()
        request.infer_sync(X)
        assert [item.op for item in request.profiling()] == ["Softmax", "Transpose"]
        assert all(item.end_ns >= item.start_ns > 0 for item in request.profiling())


def test_a_real_device_says_when_it_did_what(core: Core) -> None:
    given = np.ones((300, 1000), np.float32)
    with core.load_network(negating(X, dynamic=True), "OPENCL") as network:
        device, request = network.device, network.create_infer_request()
        for _ in range(5):
            request.infer_sync(given)
        after_ns, trace = perf_counter_ns(), network.trace()
        assert len(trace.runs) == 5
        for run in trace.runs:
            by_lane = {trace[index].lane: trace[index] for index in run.spans}
            works = [by_lane[f"{device} {name}"] for name in ("upload", "compute", "download")]
            for work in works:
                assert work.queued_ns <= work.started_ns < work.ended_ns <= after_ns + CLOCKS_NS
                assert by_lane[f"{work.lane} host"].started_ns <= work.queued_ns
            for earlier, later in pairwise(works):
                assert earlier.ended_ns <= later.started_ns


def test_one_context_and_its_queues_serve_all_networks(driver: FakeDriver, fake_core: Core) -> None:
    driver.is_eager = True
    for _ in range(2):
        fake_core.load_network(negating(X), "FAKE")
    assert len(driver.contexts) == 1
    names = [queue.name for queue in driver.contexts[0].queues]
    assert names == [
        *("FAKE.0 upload", "FAKE.0 setup"),
        *("FAKE.0 compute", "FAKE.0 download"),
        *("FAKE.0 compute 1", "FAKE.0 download 1"),
    ]
