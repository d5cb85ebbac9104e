"""Requests that share runs, on devices that wait for the test."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.testing import MockDevices, VirtualTimer

WAIT_S = 20.0  # a bound for what must happen; never slept through
HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
RELU = f"{HEADER} (float[batch, n] x) => (float[batch, n] y) {{ y = Relu (x) }}"
LOOKUP = (
    f"{HEADER} (int64[batch, 1] x) => (float[batch, 1] y) "
    "<float[4] table = {0, 10, 20, 30}> { y = Gather (table, x) }"
)


def load(
    core: aioinfer.Core, text: str = RELU, device: str = "BATCH:MOCK(4)", **config: Any
) -> aioinfer.ExecutableNetwork:
    return core.load_network(parser.parse_model(text), device, config)


def row(number: float, *, count: int = 1, length: int = 2) -> np.ndarray:
    return np.full((count, length), number, np.float32)


def start(
    network: aioinfer.ExecutableNetwork, *inputs: np.ndarray, **options: Any
) -> list[aioinfer.InferRequest]:
    requests = [network.create_infer_request() for _ in inputs]
    for request, given in zip(requests, inputs, strict=True):
        request.start_async(given, **options)
    return requests


def batches(network: aioinfer.ExecutableNetwork) -> dict[int, int]:
    (part,) = network.statistics().parts
    return dict(part.batch_sizes)


def check(requests: list[aioinfer.InferRequest], *inputs: np.ndarray) -> None:
    for request, given in zip(requests, inputs, strict=True):
        assert request.wait(WAIT_S)
        np.testing.assert_array_equal(request.results["y"], np.maximum(given, 0))


def test_the_first_goes_at_once_and_those_that_come_meanwhile_together(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    inputs = [row(-1), row(2), row(3, count=2), row(4)]
    network = load(core)
    requests = start(network, *inputs)
    assert mock[0].held.waiting_count == 2  # the full run follows the first at once
    mock[0].held.release(2)
    check(requests, *inputs)
    assert batches(network) == {1: 1, 4: 1}


def test_what_joining_and_splitting_copy_is_counted(core: aioinfer.Core, mock: MockDevices) -> None:
    inputs, bound = [row(-1), row(2), row(3, count=2), row(4)], np.empty((1, 2), np.float32)
    network = load(core)
    requests = [network.create_infer_request() for _ in inputs]
    requests[-1].set_tensor("y", bound)
    for request, given in zip(requests, inputs, strict=True):
        request.start_async(given)
    mock[0].held.release(2)
    check(requests, *inputs)
    joined = sum(given.nbytes for given in inputs[1:])
    copied = network.statistics().copied_bytes
    assert copied == {"join": {"host": joined}, "split": {"host": bound.nbytes}}


def test_a_run_that_is_not_full_begins_when_the_device_is_idle(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    inputs = [row(1), row(2), row(3)]
    network = load(core)
    requests = start(network, *inputs)
    assert mock[0].held.waiting_count == 1
    mock[0].held.release()
    assert mock[0].held.waiting_count == 1
    mock[0].held.release()
    check(requests, *inputs)
    assert batches(network) == {1: 1, 2: 1}


def test_other_lengths_are_run_apart(core: aioinfer.Core, mock: MockDevices) -> None:
    inputs = [row(1), row(2, length=3), row(3), row(4, length=3)]
    network = load(core)
    requests = start(network, *inputs)
    for _ in inputs[1:]:
        mock[0].held.release()
    check(requests, *inputs)
    assert batches(network) == {1: 2, 2: 1}


def test_a_higher_priority_is_in_the_next_run(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, device="BATCH:MOCK(1)", PERFORMANCE_HINT_NUM_REQUESTS=8)
    low = start(network, row(1), row(2), row(3))
    high = start(network, row(4), priority=1)
    mock[0].held.release(2)
    assert high[0].wait(0) is False
    mock[0].held.release()
    assert high[0].wait(WAIT_S)
    assert low[2].wait(0) is False
    mock[0].held.release()
    assert low[2].wait(WAIT_S)


def test_with_a_timeout_a_run_waits_for_more_requests(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, AUTO_BATCH_TIMEOUT=500)
    network.clock = timer = VirtualTimer()
    first = start(network, row(1))
    timer.advance(0.3)
    second = start(network, row(2))
    timer.advance(0.19)
    assert mock[0].held.waiting_count == 0
    timer.advance(0.02)
    mock[0].held.release()
    check(first + second, row(1), row(2))
    assert batches(network) == {2: 1}
    full = start(network, row(1), row(2, count=3))
    mock[0].held.release()
    check(full, row(1), row(2, count=3))


def test_who_cancels_while_waiting_is_in_no_run(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    first, leaves, stays = start(network, row(1), row(2), row(3))
    leaves.cancel()
    with pytest.raises(RequestCancelledError):
        leaves.wait(WAIT_S)
    leaves.start_async(row(4))
    mock[0].held.release()
    mock[0].held.release()
    check([first, stays, leaves], row(1), row(3), row(4))


def test_who_cancels_in_a_run_is_answered_and_the_run_goes_on(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    first, leaves, stays = start(network, row(1), row(2), row(3))
    mock[0].held.release()
    leaves.cancel()
    assert not leaves.wait(0)  # its slot is in use
    mock[0].held.release()
    with pytest.raises(RequestCancelledError):
        leaves.wait(WAIT_S)
    check([first, stays], row(1), row(3))


def test_a_run_stops_when_all_who_share_it_have_stopped(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    first, *both = start(network, row(1), row(2), row(3))
    mock[0].held.release()
    computed: list[str] = []
    mock[0].stage_fault = lambda stage: computed.append(stage)
    for request in both:
        request.cancel()
    mock[0].held.release()
    for request in both:
        with pytest.raises(RequestCancelledError):
            request.wait(WAIT_S)
    check([first], row(1))
    assert computed == []


def test_a_deadline_passes_in_a_run_for_one_alone(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    network.clock = timer = VirtualTimer()
    (first,) = start(network, row(1))
    (hurried,) = start(network, row(2), deadline_s=1.0)
    (patient,) = start(network, row(3))
    mock[0].held.release()
    timer.advance(2.0)
    mock[0].held.release()
    with pytest.raises(DeadlineExceededError):
        hurried.wait(WAIT_S)
    check([first, patient], row(1), row(3))


def test_one_bad_item_fails_alone(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, LOOKUP)
    given = [np.array([[index]], np.int64) for index in (1, 2, 99, 3)]
    requests = start(network, *given)
    while mock[0].held.waiting_count:
        mock[0].held.release()
    for request, index in zip(requests, (1, 2, 99, 3), strict=True):
        if index == 99:
            with pytest.raises(TensorError) as raised:
                request.wait(WAIT_S)
            assert "run together with 2 other requests" in raised.value.__notes__[-1]
        else:
            assert request.wait(WAIT_S)
            assert request.results["y"] == 10 * index
    again = start(network, *given[:2])
    while mock[0].held.waiting_count:
        mock[0].held.release()
    assert all(request.wait(WAIT_S) for request in again)


def test_memory_that_a_caller_has_bound_gets_his_own_rows(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    memory = np.zeros((1, 2), np.float32)
    first, bound, misfit = (network.create_infer_request() for _ in range(3))
    bound.set_tensor("y", memory)
    misfit.set_tensor("y", np.zeros((3, 2), np.float32))
    for number, request in enumerate((first, bound, misfit), start=1):
        request.start_async(row(number))
    mock[0].held.release()
    mock[0].held.release()
    assert bound.wait(WAIT_S)
    assert bound.results["y"] is memory
    np.testing.assert_array_equal(memory, row(2))
    with pytest.raises(TensorError, match="bind one that fits"):
        misfit.wait(WAIT_S)


def test_rows_that_disagree_are_refused_by_the_device_and_disturb_nobody(
    core: aioinfer.Core,
) -> None:
    text = f"{HEADER} (float[b, 2] p, float[b, 2] q) => (float[b, 2] y) {{ y = Add (p, q) }}"
    network = load(core, text, "BATCH:REFERENCE(4)")
    with pytest.raises(TensorError, match="'b'"):
        network.create_infer_request().infer_sync({"p": row(1), "q": row(1, count=2)})


def test_a_full_queue_refuses(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, PERFORMANCE_HINT_NUM_REQUESTS=1, MAX_QUEUED_REQUESTS=1)
    requests = start(network, row(1), row(2))
    with pytest.raises(OverloadedError):
        start(network, row(3))
    mock[0].held.release()
    mock[0].held.release()
    check(requests, row(1), row(2))


def test_closing_without_draining_stops_those_that_wait_and_those_that_run(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    requests = start(network, *[row(number) for number in range(12)])
    network.abort()
    while mock[0].held.waiting_count:
        mock[0].held.release()
    for request in requests:
        with pytest.raises(ClosedError):
            request.wait(WAIT_S)
    assert network.close(timeout_s=WAIT_S)


async def test_many_tasks_get_what_they_would_get_alone(core: aioinfer.Core) -> None:
    network = load(core, device="BATCH:REFERENCE(8)")
    generator = np.random.default_rng(0)
    inputs = [
        generator.standard_normal((int(count), int(length)), np.float32)
        for count, length in generator.integers(1, 4, (200, 2))
    ]
    outputs = await asyncio.gather(*(network.infer(given) for given in inputs))
    for given, output in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(output["y"], np.maximum(given, 0))


def test_a_closed_network_goes_without_the_collector(core: aioinfer.Core) -> None:
    network = load(core, device="BATCH:REFERENCE(4)")
    network.create_infer_request().infer_sync(row(1))
    gone = weakref.ref(network)
    gc.disable()
    try:
        network.close()
        del network
        assert gone() is None
    finally:
        gc.enable()


def test_facts_are_those_of_the_device_inside(core: aioinfer.Core) -> None:
    network = load(core, device="BATCH:REFERENCE(4)")
    assert network.execution_devices == ("BATCH:REFERENCE.0(4)",)
    assert network.get_metric("MAX_BATCH_SIZE") == 4
    assert "share a run, of up to 4 rows" in network.explain()
    assert network.get_config("AUTO_BATCH_TIMEOUT") == 0


def test_a_deadline_sends_a_run_that_waits_for_more_in_time(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, AUTO_BATCH_TIMEOUT=10_000)
    network.clock = timer = VirtualTimer()
    patient = start(network, row(1))
    hurried = start(network, row(2), deadline_s=2.0)
    timer.advance(0.9)
    assert mock[0].held.waiting_count == 0
    timer.advance(0.2)  # half of what it has: how long runs take is not known
    assert mock[0].held.waiting_count == 1
    timer.advance(0.1)
    mock[0].held.release()
    check(patient + hurried, row(1), row(2))
    assert batches(network) == {2: 1}
    assert isinstance(network, BatchNetwork)
    assert network.service_s == pytest.approx(0.2)
    again = start(network, row(3), deadline_s=2.0)
    timer.advance(1.5)
    assert mock[0].held.waiting_count == 0
    timer.advance(0.11)  # twice as long as a run takes is left
    mock[0].held.release()
    check(again, row(3))


def test_an_alarm_of_one_who_has_left_disturbs_nobody(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, AUTO_BATCH_TIMEOUT=1000)
    network.clock = timer = VirtualTimer()
    leaves, stays = start(network, row(1), deadline_s=0.5), start(network, row(2))
    leaves[0].cancel()
    timer.advance(0.6)
    assert mock[0].held.waiting_count == 0
    timer.advance(0.5)
    mock[0].held.release()
    check(stays, row(2))


def test_statistics_and_traces_tell_who_shared_a_run(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    requests = start(network, row(1), row(2), row(3, count=2))
    mock[0].held.release()
    mock[0].held.release()
    check(requests, row(1), row(2), row(3, count=2))
    statistics = network.statistics()
    assert statistics.group_sizes == {1: 1, 2: 1}
    assert statistics.parts[0].batch_sizes == {1: 1, 3: 1}
    assert statistics.slot_wait.count == 3
    first, second, third = (request.id for request in requests)
    trace = network.trace()
    assert {span.run_id: span.members for span in trace} == {first: (), second: (second, third)}
    assert f'"members":[{second},{third}]' in trace.chrome_json().replace(" ", "")
    assert f"[{second},{third}]" in trace.html()


def test_a_profile_says_how_many_requests_its_times_are_of(core: aioinfer.Core) -> None:
    network = load(core, device="BATCH:REFERENCE(4)", PERF_COUNT=True, AUTO_BATCH_TIMEOUT=60_000)
    requests = start(network, row(1), row(2), row(3, count=2))
    check(requests, row(1), row(2), row(3, count=2))
    for request in requests:
        assert [node.op for node in request.profiling()] == ["Relu"]
        assert request.profiling().request_count == 3
