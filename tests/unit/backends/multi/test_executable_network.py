"""Requests that are shared out among devices which wait for the test, and fail when told to."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.multi import executable_network
from aioinfer.backends.multi.executable_network import MultiNetwork
from aioinfer.backends.multi.probe import Probe
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    PropertyError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.executors import NOW
from aioinfer.testing import MockDevices, VirtualTimer

WAIT_S = 20.0  # a bound for what must happen; never slept through
HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
RELU = f"{HEADER} (float[batch, n] x) => (float[batch, n] y) {{ y = Relu (x) }}"
LOOKUP = (
    f"{HEADER} (int64[batch] x) => (float[batch] y) "
    "<float[4] table = {0, 10, 20, 30}> { y = Gather (table, x) }"
)
BOTH = "MULTI:MOCK.0,MOCK.1"


def load(
    core: aioinfer.Core, device: str = BOTH, text: str = RELU, **config: Any
) -> aioinfer.ExecutableNetwork:
    network = core.load_network(parser.parse_model(text), device, config)
    network.clock = VirtualTimer()
    return network


def row(number: float) -> np.ndarray:
    return np.full((1, 2), number, np.float32)


def start(
    network: aioinfer.ExecutableNetwork, count: int, **options: Any
) -> list[aioinfer.InferRequest]:
    requests = [network.create_infer_request() for _ in range(count)]
    for number, request in enumerate(requests):
        request.start_async(row(number), **options)
    return requests


def held(mock: MockDevices) -> list[int]:
    return [device.held.waiting_count for device in mock.devices[:2]]


def check(requests: list[aioinfer.InferRequest]) -> None:
    for number, request in enumerate(requests):
        assert request.wait(WAIT_S)
        np.testing.assert_array_equal(request.results["y"], row(number))


def release_all(mock: MockDevices) -> None:
    while any(held(mock)):
        for device in mock.devices:
            device.held.release(device.held.waiting_count)


def measure(network: aioinfer.ExecutableNetwork, mock: MockDevices, *times_s: float) -> None:
    """Have each device in turn run twice, for so long."""
    clock: Any = network.clock
    for _ in range(2):
        requests = start(network, len(times_s))
        order = sorted(range(len(times_s)), key=times_s.__getitem__)
        passed_s = 0.0
        for index in order:
            clock.advance(times_s[index] - passed_s)
            passed_s = times_s[index]
            mock[index].held.release()
        check(requests)


def broken(error: BaseException) -> Any:
    return lambda stage: error


def test_the_first_requests_find_out_how_fast_the_devices_are(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    requests = start(network, 4)
    assert held(mock) == [2, 2]
    release_all(mock)
    check(requests)
    assert [device.run_count for device in network.statistics().devices] == [2, 2]


def test_a_request_waits_for_a_fast_device_rather_than_go_to_a_slow_one(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].slot_count = mock[1].slot_count = 1
    network = load(core)
    measure(network, mock, 1.0, 10.0)
    requests = start(network, 2)
    assert held(mock) == [1, 0]
    assert "waiting for a device" in repr(requests[1])
    mock[0].held.release()
    assert held(mock) == [1, 0]
    release_all(mock)
    check(requests)


def test_a_slow_device_helps_when_many_wait(core: aioinfer.Core, mock: MockDevices) -> None:
    mock[0].slot_count = mock[1].slot_count = 1
    network = load(core)
    measure(network, mock, 1.0, 3.5)
    requests = start(network, 2)
    assert held(mock) == [1, 0]
    requests += start(network, 4)
    clock: Any = network.clock
    clock.advance(1.0)
    mock[0].held.release()
    assert held(mock) == [1, 1]
    release_all(mock)
    assert all(request.wait(WAIT_S) for request in requests)


def test_nobody_waits_for_ever_for_a_device_that_hangs(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].slot_count = mock[1].slot_count = 1
    network = load(core)
    measure(network, mock, 1.0, 10.0)
    requests = start(network, 2)
    assert held(mock) == [1, 0]
    clock: Any = network.clock
    clock.advance(30.0)
    assert held(mock) == [1, 1]
    mock[1].held.release()
    assert requests[1].wait(WAIT_S)
    mock[0].held.release()
    check(requests)


@pytest.mark.parametrize(
    ("policy", "shares"), [("DEVICE_PRIORITY", [2, 0]), ("ROUND_ROBIN", [1, 1])]
)
def test_the_other_policies_ask_only_who_has_room(
    policy: str, shares: list[int], core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, SCHEDULE_POLICY=policy)
    requests = start(network, 2)
    assert held(mock) == shares
    release_all(mock)
    check(requests)


def test_a_count_bounds_what_a_device_has_at_a_time(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, "MULTI:MOCK.0(1),MOCK.1(2)")
    assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3
    requests = start(network, 5)
    assert held(mock) == [1, 2]
    release_all(mock)
    check(requests)


def test_what_a_device_has_when_it_fails_runs_elsewhere(
    core: aioinfer.Core, mock: MockDevices, caplog: pytest.LogCaptureFixture
) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    mock[0].stage_fault = broken(DeviceError("it fell off the bus"))
    requests = start(network, 2)
    with caplog.at_level(logging.INFO, "aioinfer.MULTI"):
        mock[0].held.release(2)
    assert held(mock) == [0, 2]
    release_all(mock)
    check(requests)
    first, second = network.statistics().devices
    assert (first.is_in_use, first.failure_count, first.moved_run_count) == (False, 1, 2)
    assert (second.is_in_use, second.run_count, second.moved_run_count) == (True, 2, 0)
    assert network.statistics().finished_request_count == 2
    assert network.get_metric("EXECUTION_DEVICES") == ["MOCK.1"]
    assert "MOCK.0 is taken out" in caplog.text
    assert "goes on to MOCK.1" in caplog.text
    assert "it fell off the bus" in network.explain()
    assert "failed on MOCK.0" in {span.stage for span in network.trace()}


def test_a_failure_that_only_the_token_tells_is_waited_for(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    mock[0].device_fault = broken(DeviceError("lost"))
    requests = start(network, 1)
    mock[0].held.release()
    assert held(mock) == [0, 1]
    release_all(mock)
    check(requests)


def test_a_device_that_works_again_is_taken_in(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    mock[0].stage_fault = broken(DeviceError("lost"))
    requests = start(network, 1)
    mock[0].held.release()
    mock[1].held.release()
    check(requests)
    let_pass(network, 0.11)
    mock[0].held.release()
    assert network.statistics().devices[0].failure_count == 2
    mock[0].stage_fault = None
    let_pass(network, 0.11)
    assert held(mock)[0] == 0, "it is tried half as often now"
    let_pass(network, 0.1)
    mock[0].held.release()
    assert network.statistics().devices[0].is_in_use
    requests = start(network, 1)
    assert held(mock) == [1, 0]
    release_all(mock)
    check(requests)


def test_a_run_from_before_the_failure_proves_nothing(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    requests = start(network, 2)
    mock[0].stage_fault = broken(DeviceError("it fell off the bus"))
    mock[0].held.release()
    mock[0].stage_fault = None
    mock[0].held.release()
    mock[1].held.release()
    check(requests)
    assert not network.statistics().devices[0].is_in_use
    assert "it fell off the bus" in network.explain()
    mock[0].stage_fault = broken(DeviceError("still"))
    let_pass(network, 0.11)
    mock[0].held.release()
    let_pass(network, 0.11)
    assert held(mock)[0] == 0, "it is tried half as often now"


@pytest.mark.parametrize("method", ["begin", "_run", "_made", "_ran"])
def test_a_device_is_tried_again_though_its_probe_finds_no_memory(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    whole, failures = getattr(Probe, method), [MemoryError(f"for {method}")]

    def fail_once(probe: Probe, *args: Any) -> Any:
        if failures:
            raise failures.pop()
        return whole(probe, *args)

    monkeypatch.setattr(Probe, method, fail_once)
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    mock[0].stage_fault = broken(DeviceError("lost"))
    requests = start(network, 1)
    mock[0].held.release()
    mock[1].held.release()
    check(requests)
    mock[0].stage_fault = None
    for _ in range(3):
        let_pass(network, 1.0)
        while held(mock)[0]:
            mock[0].held.release()
    assert not failures
    assert network.statistics().devices[0].is_in_use


def being_tried(core: aioinfer.Core, mock: MockDevices) -> aioinfer.ExecutableNetwork:
    """Make a network whose first device has failed, and has a run to show whether it works."""
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    mock[0].stage_fault = lambda stage: DeviceError("lost")  # which nothing holds afterwards
    requests = start(network, 1)
    mock[0].held.release()
    mock[1].held.release()
    check(requests)
    let_pass(network, 0.11)
    assert held(mock)[0] == 1
    return network


def test_a_device_that_hangs_when_it_is_tried_holds_no_close_up(
    core: aioinfer.Core,
    mock: MockDevices,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(executable_network, "PROBE_END_S", 0.0)
    caplog.set_level(logging.CRITICAL, "aioinfer.MULTI")  # kept records hold errors and networks
    gc.collect()
    gc.disable()
    try:
        network = being_tried(core, mock)
        assert isinstance(network, MultiNetwork)
        mock[0].stage_fault = None
        inner = weakref.ref(network.members[0].network)
        del mock[0].loaded[:], mock[1].loaded[:]
        assert network.close(timeout_s=WAIT_S)
        closers = [item for item in threading.enumerate() if "aioinfer.close." in item.name]
        assert [closer.name for closer in closers] == [f"aioinfer.close.{network.name}"]
        mock[0].held.release()
        closers[0].join(WAIT_S)
        assert not closers[0].is_alive()
        gone = weakref.ref(network)
        del network, closers
        assert gone() is None
        assert inner() is None
    finally:
        gc.enable()


def test_a_device_that_heeds_a_stop_is_closed_with_the_network(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = being_tried(core, mock)
    network.abort()
    mock[0].held.release()
    assert network.close(timeout_s=WAIT_S)
    assert isinstance(network, MultiNetwork)
    assert all(part.is_closed for part in network.networks)
    assert not any("aioinfer.close." in item.name for item in threading.enumerate())


def test_nothing_is_set_to_happen_after_a_close(core: aioinfer.Core, mock: MockDevices) -> None:
    network = being_tried(core, mock)
    assert isinstance(network, MultiNetwork)
    mock[0].held.release()
    alarm = network.members[0].alarm
    assert alarm is not None
    assert alarm.is_pending
    network.close()
    network.tried(network.members[0], DeviceError("a probe that ends late"))
    network._try_later(network.members[0], 0.1)
    assert network.members[0].alarm is alarm
    assert not alarm.is_pending


def let_pass(network: aioinfer.ExecutableNetwork, passed_s: float) -> None:
    """Advance the clock, and have the thread make the runs that are to try devices out."""
    clock: Any = network.clock
    clock.advance(passed_s)
    assert isinstance(network, MultiNetwork)
    network.probes.run_and_wait([lambda lane: NOW])


def test_a_bad_request_is_nobody_else_s_fault(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, text=LOOKUP, SCHEDULE_POLICY="DEVICE_PRIORITY")
    request = network.create_infer_request()
    request.start_async(np.array([99]))
    mock[0].held.release()
    with pytest.raises(TensorError):
        request.wait(WAIT_S)
    assert network.statistics().devices[0].is_in_use
    assert held(mock) == [0, 0]


def test_when_all_devices_fail_the_caller_is_told_and_the_next_one_tries_again(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    for index in range(2):
        mock[index].stage_fault = broken(DeviceError(f"lost {index}"))
    (request,) = start(network, 1)
    release_all(mock)
    with pytest.raises(DeviceError, match="lost 1") as raised:
        request.wait(WAIT_S)
    assert "MOCK.0" in raised.value.__notes__[-1]
    mock[0].stage_fault = mock[1].stage_fault = None
    requests = start(network, 1)
    release_all(mock)
    check(requests)


def test_a_lack_of_memory_moves_the_request_and_keeps_the_device(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    mock[0].stage_fault = broken(DeviceError("too big for it", resource="memory"))
    requests = start(network, 1)
    mock[0].held.release()
    assert held(mock) == [0, 1]
    release_all(mock)
    check(requests)
    assert network.statistics().devices[0].is_in_use


def test_priorities_can_be_changed_at_run_time(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    network.set_config({"MULTI_DEVICE_PRIORITIES": "MOCK.1,MOCK.0"})
    assert network.get_config("MULTI_DEVICE_PRIORITIES") == "MOCK.1,MOCK.0"
    requests = start(network, 1)
    assert held(mock) == [0, 1]
    network.set_config({"MULTI_DEVICE_PRIORITIES": "MOCK.0"})
    assert network.get_metric("EXECUTION_DEVICES") == ["MOCK.0"]
    assert "not among MULTI_DEVICE_PRIORITIES" in network.explain()
    requests += start(network, 3)
    assert held(mock) == [2, 1]
    network.set_config({"MULTI_DEVICE_PRIORITIES": "MOCK", "SCHEDULE_POLICY": "ROUND_ROBIN"})
    assert held(mock) == [2, 2]
    release_all(mock)
    assert all(request.wait(WAIT_S) for request in requests)


@pytest.mark.parametrize(
    "values",
    [
        {"MULTI_DEVICE_PRIORITIES": "MOCK.2"},
        {"MULTI_DEVICE_PRIORITIES": ""},
        {"MULTI_DEVICE_PRIORITIES": "MOCK.0,MOCK"},
        {"PERF_COUNT": True},
        {"SCHEDULE_POLICY": "FASTEST"},
    ],
)
def test_what_cannot_be_changed_is_refused(
    values: dict[str, Any], core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    with pytest.raises(PropertyError):
        network.set_config(values)
    with pytest.raises(PropertyError, match="was fixed"):
        core.load_network(parser.parse_model(RELU), "MOCK.2").set_config({"PERF_COUNT": True})


def test_who_cancels_while_waiting_reaches_no_device(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].slot_count = mock[1].slot_count = 1
    network = load(core)
    measure(network, mock, 1.0, 10.0)
    stays, leaves = start(network, 2)
    leaves.cancel()
    with pytest.raises(RequestCancelledError):
        leaves.wait(WAIT_S)
    release_all(mock)
    check([stays])
    assert network.statistics().devices[0].run_count == 3


def test_who_has_cancelled_is_not_run_again(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, SCHEDULE_POLICY="DEVICE_PRIORITY")
    (request,) = start(network, 1)
    mock[0].device_fault = broken(DeviceError("lost"))
    request.cancel()
    mock[0].held.release()
    with pytest.raises(RequestCancelledError):
        request.wait(WAIT_S)
    assert held(mock) == [0, 0]


def test_a_deadline_passes_while_waiting(core: aioinfer.Core, mock: MockDevices) -> None:
    mock[0].slot_count = mock[1].slot_count = 1
    network = load(core)
    measure(network, mock, 1.0, 10.0)
    (first,) = start(network, 1)
    (hurried,) = start(network, 1, deadline_s=0.5)
    clock: Any = network.clock
    clock.advance(0.6)
    with pytest.raises(DeadlineExceededError):
        hurried.wait(WAIT_S)
    release_all(mock)
    check([first])


def test_a_higher_priority_gets_the_next_device(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, "MULTI:MOCK.0(1),MOCK.1(1)")
    busy = start(network, 2)
    low = start(network, 2)
    (high,) = start(network, 1, priority=1)
    mock[0].held.release()
    mock[0].held.release()
    assert high.wait(WAIT_S)
    assert not low[0].wait(0)
    release_all(mock)
    check(busy)
    assert all(request.wait(WAIT_S) for request in low)


def test_closing_without_draining_ends_all(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    requests = start(network, 9)
    network.abort()
    release_all(mock)
    for request in requests:
        with pytest.raises(ClosedError):
            request.wait(WAIT_S)
    assert network.close(timeout_s=WAIT_S)


def test_a_closed_network_goes_without_the_collector(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    gc.collect()
    gc.disable()
    try:
        network = load(core)
        mock[0].stage_fault = broken(DeviceError("lost"))
        requests = start(network, 3)
        release_all(mock)
        check(requests)
        requests.clear()
        del mock[0].loaded[:], mock[1].loaded[:]
        network.close()
        gone = weakref.ref(network)
        del network
        assert gone() is None
    finally:
        gc.enable()


def test_profiles_say_which_device_served(core: aioinfer.Core) -> None:
    network = load(core, "MULTI:REFERENCE.0,REFERENCE.1", PERF_COUNT=True)
    request = network.create_infer_request()
    request.infer_sync(row(1))
    (entry,) = request.profiling()
    assert entry.name.startswith("REFERENCE.0: ")


async def test_many_tasks_get_what_they_would_get_alone(core: aioinfer.Core) -> None:
    network = core.load_network(parser.parse_model(RELU), "MULTI:REFERENCE.0,REFERENCE.1")
    inputs = [np.full((1, 1 + index % 3), index, np.float32) for index in range(200)]
    outputs = await asyncio.gather(*(network.infer(given) for given in inputs))
    for given, output in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(output["y"], np.maximum(given, 0))
    assert len(network.statistics().parts) == 2
