"""Runs that replay launch graphs: in every order, ended at every point, in many shapes."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.executable_network import AcceleratorNetwork
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import AioInferError, ClosedError, DeadlineExceededError, DeviceError
from aioinfer.runtime.plans.plan_cache import PLAN_COUNT
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving

ONE_SLOT = {"PERFORMANCE_HINT_NUM_REQUESTS": 1}
COMMAND_COUNT = 2
"""Of a run on the device: replay, marker."""
CAPTURE_STEPS = 8
"""Of one: it begins; write, launch and read, for nothing and again; it ends."""
WAIT_S = 20.0


@pytest.fixture
def can_capture() -> bool:
    return True


@pytest.fixture
def driver(can_capture: bool) -> FakeDriver:
    return FakeDriver(replace(FACTS, can_capture=can_capture), is_eager=False)


@pytest.fixture
def fake_core(driver: FakeDriver) -> Iterator[Core]:
    with serving(driver, CapturingPlugin) as core:
        yield core
    assert all(context.alive == context.launch_graphs == [] for context in driver.contexts)


def rows_of(count: int, number: float = 0) -> np.ndarray:
    return np.arange(count * 4, dtype=np.float32).reshape(count, 4) + np.float32(number)


def load(core: Core, config: dict[str, Any] | None = None, *, dynamic: bool = False) -> Any:
    network = core.load_network(negating(rows_of(3), dynamic=dynamic), "FAKE", config)
    assert isinstance(network, AcceleratorNetwork)
    return network


def outcome(request: Any) -> BaseException | None:
    """Wait for an answer, and return its error."""
    try:
        assert request.wait(WAIT_S)
    except AioInferError as error:
        return error
    return None


def counts(network: Any) -> tuple[int, int]:
    captured, eager = "CAPTURED_PLAN_COUNT", "EAGER_PLAN_COUNT"
    return network.get_metric(captured), network.get_metric(eager)


@pytest.mark.parametrize("seed", range(20))
def test_replays_are_right_in_every_order_of_the_queues(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    network = load(fake_core, {"PERFORMANCE_HINT": "THROUGHPUT"})
    assert counts(network) == (3, 0)
    requests = [network.create_infer_request() for _ in range(6)]
    for number, request in enumerate(requests):
        request.start_async(rows_of(3, number))
    (context,) = driver.contexts
    pump(context, *requests, seed=seed)
    for number, request in enumerate(requests):
        np.testing.assert_array_equal(request.results["y"], -rows_of(3, number))
    assert context.done.count("compute: replay") == 6
    assert "compute: launch" not in context.done


@pytest.mark.parametrize("seed", range(20))
def test_shapes_in_turn_grow_arenas_while_other_slots_run(
    seed: int, driver: FakeDriver, fake_core: Core
) -> None:
    network = load(fake_core, dynamic=True)
    chance = random.Random(seed)
    shapes = [chance.choice([1, 2, 5, 40, 90]) for _ in range(12)]
    requests = [network.create_infer_request() for _ in shapes]
    for number, (request, count) in enumerate(zip(requests, shapes, strict=True)):
        request.start_async(rows_of(count, number))
    pump(driver.contexts[0], *requests, seed=seed)
    for number, (request, count) in enumerate(zip(requests, shapes, strict=True)):
        np.testing.assert_array_equal(request.results["y"], -rows_of(count, number))


def test_a_slot_records_while_another_replays(driver: FakeDriver, fake_core: Core) -> None:
    network, (first, second) = load(fake_core, dynamic=True), (rows_of(3), rows_of(7))
    (context,) = driver.contexts
    requests = [network.create_infer_request() for _ in range(3)]
    requests[0].start_async(first)
    pump(context, requests[0])
    requests[1].start_async(first)
    seen: list[int] = []

    def meanwhile() -> None:
        seen.append(len([command for queue in context.queues for command in queue.commands]))
        context.run_all()

    driver.while_capturing = meanwhile
    requests[2].start_async(second)
    assert requests[1].wait(WAIT_S)
    pump(context, requests[2])
    assert seen == [COMMAND_COUNT]
    np.testing.assert_array_equal(requests[1].results["y"], -first)
    np.testing.assert_array_equal(requests[2].results["y"], -second)


def test_a_plan_that_is_dropped_while_it_is_replayed_is_replayed_to_its_end(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    network = load(fake_core, ONE_SLOT, dynamic=True)
    request = network.create_infer_request()
    request.infer_sync(rows_of(3))
    driver.is_eager = False
    request.start_async(rows_of(3))
    for count in range(10, 12 + PLAN_COUNT):  # none of them is run
        token = network.shape_plans.request({"x": rows_of(count)})
        while not token.is_ready:
            request.wait(0.01)
    assert counts(network) == (0, 0)
    (context,) = driver.contexts
    assert len(context.launch_graphs) == 1
    pump(context, request)
    np.testing.assert_array_equal(request.results["y"], -rows_of(3))
    driver.is_eager = True
    request.infer_sync(rows_of(10))
    assert len(context.launch_graphs) == 1


def test_a_profiled_run_launches_one_by_one(driver: FakeDriver, fake_core: Core) -> None:
    driver.is_eager = True
    network = load(fake_core, {"PERF_COUNT": True})
    request = network.create_infer_request()
    np.testing.assert_array_equal(request.infer_sync(rows_of(3))["y"], -rows_of(3))
    assert [item.op for item in request.profiling()] == ["Neg"]
    (context,) = driver.contexts
    assert "compute: launch" in context.done
    assert "compute: replay" not in context.done


@pytest.mark.parametrize("can_capture", [False])
def test_a_device_that_cannot_record_launches_one_by_one(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    network = load(fake_core)
    network.create_infer_request().infer_sync(rows_of(3))
    assert "compute: launch" in driver.contexts[0].done
    assert "CAPTURED_PLAN_COUNT" not in network.get_metric("SUPPORTED_METRICS")


def test_a_network_whose_driver_refuses_to_record_works_and_says_so(
    driver: FakeDriver, fake_core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    driver.is_eager = True
    for step in range(1, 50):
        driver.capture_errors[step] = DriverError(ErrorKind.OTHER, "no graphs here")
    with caplog.at_level(logging.WARNING):
        network = load(fake_core)
    assert [record.name for record in caplog.records] == ["aioinfer.FAKE.0"]
    assert "'g': no graphs here" in caplog.text
    assert counts(network) == (0, 2)
    np.testing.assert_array_equal(
        network.create_infer_request().infer_sync(rows_of(3))["y"][0, 1], -1
    )


def test_a_load_without_room_for_launch_graphs_takes_nothing(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.capture_errors[CAPTURE_STEPS + 3] = DriverError(ErrorKind.OUT_OF_MEMORY, "no room")
    with pytest.raises(DeviceError, match=r"capturing the launches of a slot of 'g': no room"):
        load(fake_core)
    (context,) = driver.contexts
    assert context.alive == context.launch_graphs == []


def test_a_run_without_room_for_its_launch_graph_fails_alone(
    driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    network = load(fake_core, ONE_SLOT, dynamic=True)
    request, given = network.create_infer_request(), rows_of(5)
    for step in range(1, CAPTURE_STEPS + 1):  # of each attempt the next one
        driver.capture_errors[driver.capture_step_count + step] = DriverError(
            ErrorKind.OUT_OF_MEMORY, "no room"
        )
        with pytest.raises(
            DeviceError, match=r"capturing .* of 'g': no room; close other networks"
        ):
            request.infer_sync(given)
    np.testing.assert_array_equal(request.infer_sync(given)["y"], -given)
    assert counts(network) == (1, 0)


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "failing on the device"])
def test_a_replay_that_fails_fails_its_run_alone(
    is_refused: bool, driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = True
    request = load(fake_core, ONE_SLOT).create_infer_request()
    error = DriverError(ErrorKind.OTHER, "it broke")
    if is_refused:
        driver.command_errors[driver.command_count + 1] = error
    else:
        driver.fails["compute: replay"] = error
    with pytest.raises(DeviceError, match="it broke"):
        request.infer_sync(rows_of(3))
    np.testing.assert_array_equal(request.infer_sync(rows_of(3, 1))["y"], -rows_of(3, 1))
    gc.collect()  # the error's frames have the launch graph


@pytest.mark.parametrize("done_count", range(COMMAND_COUNT + 1))
@pytest.mark.parametrize("how", ["cancel", "abort"])
def test_a_run_that_is_stopped_on_the_device_leaves_a_slot_for_the_next(
    how: str, done_count: int, driver: FakeDriver, fake_core: Core
) -> None:
    network = load(fake_core, ONE_SLOT)
    request, later = (network.create_infer_request() for _ in range(2))
    (context,), order = driver.contexts, random.Random(done_count)
    request.start_async(rows_of(3))
    later.start_async(rows_of(3, 1))
    for _ in range(done_count):
        context.advance(order)
    if how == "cancel":
        request.cancel()
        pump(context, later)
        np.testing.assert_array_equal(later.results["y"], -rows_of(3, 1))
    else:
        network.abort()
        assert isinstance(outcome(later), ClosedError)
    context.run_all()
    outcome(request)
    driver.is_eager = True
    network.close()
    assert context.launch_graphs == []


def test_a_run_that_is_cancelled_while_it_is_recorded_never_reaches_the_device(
    driver: FakeDriver, fake_core: Core
) -> None:
    network = load(fake_core, ONE_SLOT, dynamic=True)
    request, later = (network.create_infer_request() for _ in range(2))
    driver.while_capturing = request.cancel
    request.start_async(rows_of(3))
    later.start_async(rows_of(3, 1))
    (context,) = driver.contexts
    pump(context, later)
    assert outcome(request) is not None
    np.testing.assert_array_equal(later.results["y"], -rows_of(3, 1))
    assert context.done.count("compute: replay") == 1


def test_a_deadline_ends_a_replayed_run_and_frees_its_slot_when_the_device_is_done(
    driver: FakeDriver, fake_core: Core
) -> None:
    network = load(fake_core, ONE_SLOT)
    later = network.create_infer_request()
    with pytest.raises(DeadlineExceededError):
        asyncio.run(network.infer(rows_of(3), deadline_s=0.01))
    later.start_async(rows_of(3, 1))
    pump(driver.contexts[0], later)
    np.testing.assert_array_equal(later.results["y"], -rows_of(3, 1))


def test_two_networks_share_a_device_and_have_launch_graphs_of_their_own(
    driver: FakeDriver, fake_core: Core
) -> None:
    networks = [load(fake_core, ONE_SLOT) for _ in range(2)]
    requests = [network.create_infer_request() for network in networks]
    for number, request in enumerate(requests):
        request.start_async(rows_of(3, number))
    (context,) = driver.contexts
    pump(context, *requests)
    for number, request in enumerate(requests):
        np.testing.assert_array_equal(request.results["y"], -rows_of(3, number))
    assert [launch_graph.replay_count for launch_graph in context.launch_graphs] == [1, 1]
    networks[0].close()
    assert len(context.launch_graphs) == 1
