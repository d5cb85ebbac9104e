"""Requests on devices that wait for the test: states, callbacks, cancel and deadline."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from types import MappingProxyType

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    PropertyError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from aioinfer.runtime.runs.run import Run
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.held_runs import X, finish, started
from unit.runtime.models import expected, nonzero_model, tiny_model, two_input_model

WAIT_S = 20.0  # a bound for what must happen; never slept through


@pytest.fixture
def request_(network: aioinfer.ExecutableNetwork) -> aioinfer.InferRequest:
    return network.create_infer_request()


def test_start_async_returns_at_once_and_wait_means_done(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    request_.start_async(X, userdata="mine")
    assert request_.wait(0) is False
    assert repr(request_) == "<InferRequest 0 of 'tiny' on MOCK.0: busy, in stage 'compute'>"
    finish(held)
    assert request_.wait() is True
    assert repr(request_) == "<InferRequest 0 of 'tiny' on MOCK.0: idle>"
    assert request_.userdata == "mine"
    assert request_.latency_s > 0
    np.testing.assert_array_equal(request_.results["y"], expected(X))


def test_wait_returns_at_once_when_nothing_was_started(request_: aioinfer.InferRequest) -> None:
    assert request_.wait() is False
    assert request_.wait(0) is False
    for timeout in (-1, float("nan"), "soon"):
        with pytest.raises(PropertyError, match="timeout_s"):
            request_.wait(timeout)  # type: ignore[arg-type]
    with pytest.raises(RequestStateError, match="no results"):
        _ = request_.results


@pytest.mark.parametrize(
    "call",
    [
        lambda request: request.start_async(X),
        lambda request: request.infer_sync(X),
        lambda request: request.set_tensor("x", X),
        lambda request: request.get_tensor("y"),
        lambda request: request.set_callback(None),
        lambda request: request.profiling(),
    ],
)
def test_a_running_request_refuses_to_be_touched(
    held: MockDevices, request_: aioinfer.InferRequest, call: Callable[[object], object]
) -> None:
    request_.start_async(X)
    with pytest.raises(RequestBusyError, match="request 0 of 'tiny'"):
        call(request_)
    request_.cancel()
    with pytest.raises(RequestBusyError, match="not done yet"):
        call(request_)
    finish(held)
    request_.start_async(X)
    finish(held)
    assert request_.wait()


def test_the_callback_runs_once_and_infer_never_calls_it(
    core: aioinfer.Core,
) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    calls: list[BaseException | None] = []
    request.set_callback(lambda _request, error: calls.append(error))
    request.infer_sync(X)
    assert calls == []
    request.start_async(X)
    assert request.wait()
    assert calls == [None]


def test_the_callback_may_restart_the_request_and_every_run_is_told(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    told: list[str] = []
    done = threading.Event()

    def callback(again: aioinfer.InferRequest, error: BaseException | None) -> None:
        told.append(repr(error))
        if len(told) < 10:
            again.start_async(X)
        else:
            done.set()

    request.set_callback(callback)
    request.start_async(X)
    assert done.wait(WAIT_S)
    assert request.wait()
    assert told == ["None"] * 10


def test_a_callback_that_raises_becomes_what_wait_raises(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()

    def callback(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        raise ValueError("in the callback")

    request.set_callback(callback)
    request.start_async(X)
    for _ in range(2):
        with pytest.raises(ValueError, match="in the callback"):
            request.wait()
    request.set_callback(None)
    np.testing.assert_array_equal(request.infer_sync(X)["y"], expected(X))


def test_blocking_calls_on_a_callback_thread_refuse(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    request, other = network.create_infer_request(), network.create_infer_request()
    raised: list[BaseException] = []

    def callback(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        for call in (lambda: other.infer_sync(X), network.close, core.close, request.wait):
            try:
                call()
            except RequestStateError as error:
                raised.append(error)

    request.set_callback(callback)
    request.start_async(X)
    request.wait()
    assert len(raised) == 4
    assert not network.is_closed


def test_a_failing_stage_is_told_to_callback_and_wait_and_the_request_lives_on(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    calls: list[BaseException | None] = []
    request_.set_callback(lambda _request, error: calls.append(error))
    error = ValueError("planted")
    request_.start_async(X)
    held[0].held.fail(error)
    with pytest.raises(ValueError, match="planted"):
        request_.wait()
    assert calls == [error]
    request_.start_async(X)
    finish(held)
    assert request_.wait()


def test_a_refused_start_raises_and_leaves_the_request_idle(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request = network.create_infer_request()
    with pytest.raises(TensorError, match="did you mean 'x'"):
        request.start_async({"X": X})
    assert "idle" in repr(request)
    request.start_async(X)
    finish(held)
    assert request.wait()


def test_cancel_of_an_idle_or_finished_request_does_nothing(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    request_.cancel()
    request_.start_async(X)
    finish(held)
    request_.cancel()
    assert request_.wait()


def test_cancel_answers_at_once_and_the_device_is_waited_for(
    streamed: MockDevices, core: aioinfer.Core
) -> None:
    request = core.load_network(tiny_model(), "STREAMED.0").create_infer_request()
    device = streamed[0].streams
    assert device is not None
    request.start_async(X)
    device.fire_next("upload")
    request.cancel()
    request.cancel()
    assert "cancelled" in repr(request)
    assert request.wait(0) is False
    device.fire_next("compute")
    assert request.wait(0) is False, "the download is still on the device"
    device.fire_next("download")
    for _ in range(2):
        with pytest.raises(RequestCancelledError, match=r"request 0 of 'tiny' on MOCK\.0"):
            request.wait()
    request.start_async(X)
    device.fire_all()
    assert request.wait()


def test_a_device_error_reaches_the_waiter(streamed: MockDevices, core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "STREAMED.0").create_infer_request()
    device = streamed[0].streams
    assert device is not None
    request.start_async(X)
    device.fail("upload", ValueError("device lost its mind"))
    device.fire_all()
    with pytest.raises(ValueError, match="lost its mind"):
        request.wait()


def test_a_run_cancelled_in_the_queue_never_reaches_the_device(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    requests = started(network, 3)
    assert held[0].held.waiting_count == 2, "two slots"
    assert network.statistics().waiting_run_count == 1
    assert "waiting for a slot" in repr(requests[2])
    requests[2].cancel()
    with pytest.raises(RequestCancelledError):
        requests[2].wait()
    assert network.statistics().waiting_run_count == 0
    finish(held)
    assert all(request.wait() for request in requests[:2])
    assert network.statistics().stages[0].count == 2


async def test_awaiting_gives_the_answer(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    for given in (X, {"x": X}, [X], X.tolist(), (X,)):
        outputs = await request.infer(given)
        np.testing.assert_array_equal(outputs["y"], expected(X))


async def test_cancelling_the_awaiting_task_cancels_the_run(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    task = asyncio.create_task(request_.infer(X))
    await asyncio.wait([task], timeout=0)
    assert held[0].held.waiting_count == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "cancelled" in repr(request_)
    with pytest.raises(RequestBusyError):
        request_.start_async(X)
    again = asyncio.create_task(request_.infer(X))
    await asyncio.wait([again], timeout=0)
    assert held[0].held.waiting_count == 1, "infer waits until the device is done"
    finish(held)
    await asyncio.wait([again], timeout=0)
    await asyncio.sleep(0)
    finish(held)
    np.testing.assert_array_equal((await again)["y"], expected(X))


async def test_asyncio_timeout_works(held: MockDevices, request_: aioinfer.InferRequest) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await request_.infer(X)
    finish(held)
    with pytest.raises(RequestCancelledError):
        await request_.wait_async()


async def test_a_deadline_in_the_past_never_reaches_the_device(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    with pytest.raises(DeadlineExceededError, match="request 0 of 'tiny'"):
        await network.infer(X, deadline_s=-1.0)
    assert held[0].held.waiting_count == 0
    assert network.statistics().expired_request_count == 1


async def test_a_deadline_answers_while_the_device_is_busy(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    clock = network.clock = VirtualTimer()
    request = network.create_infer_request()
    late = asyncio.create_task(request.infer(X, deadline_s=1.0))
    await asyncio.sleep(0)
    clock.advance(1.0)
    with pytest.raises(TimeoutError):
        await late
    assert "cancelled" in repr(request)
    late = asyncio.create_task(request.infer(X, deadline_s=1.0))
    await asyncio.sleep(0)
    clock.advance(1.0)
    with pytest.raises(DeadlineExceededError, match="still busy"):
        await late
    finish(held)
    with pytest.raises(DeadlineExceededError):
        await request.wait_async()


def test_a_deadline_or_priority_that_is_no_number_leaves_the_request_usable(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    with pytest.raises(PropertyError, match="deadline_s is nan"):
        request_.start_async(X, deadline_s=float("nan"))
    with pytest.raises(PropertyError, match="priority is 'high'"):
        request_.start_async(X, priority="high")  # type: ignore[arg-type]
    assert "idle" in repr(request_)
    request_.start_async(X)
    finish(held)
    assert request_.wait()


def test_who_asks_while_a_run_ends_is_told_when_the_request_is_idle(
    held: MockDevices, request_: aioinfer.InferRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []
    on_ended = request_.on_ended

    def ask_first(run: Run) -> None:
        run.when_answered(lambda: states.append(request_._state))
        on_ended(run)

    monkeypatch.setattr(request_, "on_ended", ask_first)
    request_.start_async(X)
    finish(held)
    assert states == ["idle"]


def test_the_callback_can_read_results_and_latency(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    seen: list[object] = []

    def callback(request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        seen.append(request.results["y"].tolist())
        seen.append(request.latency_s > 0)

    request.set_callback(callback)
    request.start_async(X)
    request.wait()
    assert seen == [expected(X).tolist(), True]


def test_a_callback_sees_its_own_run_when_another_thread_has_restarted_the_request(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"PERF_COUNT": True})
    request, other = network.create_infer_request(), network.create_infer_request()
    is_called, may_look = threading.Event(), threading.Event()
    seen: list[object] = []

    def look(request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        if request.userdata == "first":
            is_called.set()
            may_look.wait(WAIT_S)
        seen.append((request.userdata, request.results["y"].tolist(), request.latency_s > 0))
        seen.append([profile.name for profile in request.profiling()])
        with pytest.raises(RequestStateError, match="no results"):
            _ = other.results

    request.set_callback(look)
    request.start_async(X, userdata="first")
    finish(held)
    assert is_called.wait(WAIT_S)
    first = request._run
    assert first is not None
    request.start_async(X + 1, userdata="second")
    assert request.userdata == "second"  # this thread is in no callback
    with pytest.raises(RequestStateError, match="no results"):
        _ = request.results
    may_look.set()
    assert first.wait_until_ended(WAIT_S)
    finish(held)
    assert request.wait(WAIT_S)
    names = [profile.name for profile in request.profiling()]
    assert seen == [
        ("first", expected(X).tolist(), True),
        names,
        ("second", expected(X + 1).tolist(), True),
        names,
    ]


def test_a_callback_of_a_failed_run_raises_its_error_when_the_request_runs_again(
    core: aioinfer.Core, held: MockDevices
) -> None:
    request = core.load_network(tiny_model(), "MOCK.0").create_infer_request()
    seen: list[object] = []

    def look(again: aioinfer.InferRequest, error: BaseException | None) -> None:
        if error is None:
            return
        again.start_async(X + 1, userdata="second")
        with pytest.raises(ValueError, match="planted") as raised:
            _ = again.results
        seen.append((again.userdata, raised.value is error))

    request.set_callback(look)
    request.start_async(X, userdata="first")
    held[0].held.fail(ValueError("planted"))
    first = request._run
    assert first is not None
    assert first.wait_until_ended(WAIT_S)
    assert seen == [("first", True)]
    finish(held)
    assert request.wait(WAIT_S)
    assert request.userdata == "second"


def test_any_mapping_may_leave_out_what_is_bound(core: aioinfer.Core) -> None:
    request = core.load_network(two_input_model(), "REFERENCE").create_infer_request()
    request.set_tensor("a", np.ones(2, np.float32))
    given = MappingProxyType({"b": np.ones(2, np.float32)})
    np.testing.assert_array_equal(request.infer_sync(given)["sum"], [2, 2])


async def test_wait_async_does_not_cancel(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    assert await request_.wait_async() is False
    request_.start_async(X)
    waiter = asyncio.create_task(request_.wait_async())
    await asyncio.wait([waiter], timeout=0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    finish(held)
    assert await request_.wait_async() is True


def test_an_error_that_nobody_waited_for_is_logged(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    request = network.create_infer_request()
    request.start_async(X)
    held[0].held.fail(ValueError("lost"))
    with caplog.at_level(logging.ERROR, "aioinfer"):
        del request
        gc.collect()
    assert "never retrieved: ValueError('lost')" in caplog.text


def test_a_run_that_was_cancelled_is_no_forgotten_error(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    request = network.create_infer_request()
    request.start_async(X)
    request.cancel()
    finish(held)
    with caplog.at_level(logging.ERROR, "aioinfer"):
        del request
        gc.collect()
    assert caplog.text == ""


def test_results_belong_to_the_caller(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    first = request.infer_sync(X)["y"]
    kept = first.copy()
    request.infer_sync(X + 1)
    np.testing.assert_array_equal(first, kept)
    first[:] = 7
    np.testing.assert_array_equal(request.infer_sync(X)["y"], expected(X))


def test_a_bound_output_is_written_in_place(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    memory = np.full((1, 3), np.nan, np.float32)
    request.set_tensor("y", memory)
    assert request.infer_sync(X)["y"] is memory
    np.testing.assert_array_equal(memory, expected(X))
    with pytest.raises(TensorError, match=r"output 'y' is \[2,3\].*\[1,3\]"):
        request.infer_sync(np.zeros((2, 3), np.float32))
    request.set_tensor("y", None)
    assert request.infer_sync(np.zeros((2, 3), np.float32))["y"].shape == (2, 3)


def test_bound_inputs_are_read_and_what_is_given_goes_before_them(core: aioinfer.Core) -> None:
    request = core.load_network(two_input_model(), "REFERENCE").create_infer_request()
    a, b = np.ones(2, np.float32), np.full(2, 5, np.float32)
    request.set_tensor("a", a)
    np.testing.assert_array_equal(request.infer_sync({"b": b})["sum"], a + b)
    request.set_tensor("b", aioinfer.Tensor(b))
    a[:] = 3
    np.testing.assert_array_equal(request.infer_sync()["sum"], [8, 8])
    np.testing.assert_array_equal(request.infer_sync({"a": b})["sum"], [10, 10])


def test_get_tensor_is_one_handle_that_follows_the_runs(core: aioinfer.Core) -> None:
    request = core.load_network(nonzero_model(), "REFERENCE").create_infer_request()
    handle = request.get_tensor("where")
    assert handle.size == 0
    assert handle.dtype == np.int64
    for count in (3, 1):
        request.infer_sync(np.ones(count, np.float32))
        assert request.get_tensor("where") is handle
        assert handle.shape == (1, count)
    with pytest.raises(TensorError, match="no input or output 'wher'; did you mean 'where'"):
        request.get_tensor("wher")


def test_what_does_not_fit_cannot_be_bound(request_: aioinfer.InferRequest) -> None:
    with pytest.raises(TensorError, match=r"\.astype\('float32'\)"):
        request_.set_tensor("x", X.astype(np.float64))
    with pytest.raises(TensorError, match=r"\[1,4\], and \[n,3\]"):
        request_.set_tensor("y", np.zeros((1, 4), np.float32))
    frozen = np.zeros((1, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(TensorError, match="read-only"):
        request_.set_tensor("y", frozen)
    with pytest.raises(TensorError, match="no memory"):
        request_.set_tensor("x", aioinfer.Tensor())


def test_profiling_needs_the_property_and_then_names_the_nodes(core: aioinfer.Core) -> None:
    request = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
    request.infer_sync(X)
    with pytest.raises(PropertyError, match="PERF_COUNT"):
        request.profiling()
    counted = core.load_network(tiny_model(), "REFERENCE", {"PERF_COUNT": True})
    request = counted.create_infer_request()
    request.infer_sync(X)
    profile = request.profiling()
    assert [(node.name, node.op) for node in profile] == [("relu", "Relu"), ("add", "Add")]
    assert all(node.real_time_s >= 0 for node in profile)


def test_after_close_nothing_starts(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    network.close()
    network.close()
    with pytest.raises(ClosedError, match=r"network 'tiny' on MOCK\.0 is closed"):
        request.start_async(X)
    with pytest.raises(ClosedError):
        network.create_infer_request()


def test_an_aborting_close_answers_and_waits_for_the_device(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = started(network, 3)
    closing = threading.Thread(target=lambda: network.close(drain=False))
    closing.start()
    with pytest.raises(ClosedError):
        requests[2].wait()
    finish(held)
    closing.join(WAIT_S)
    assert not closing.is_alive()
    for request in requests[:2]:
        with pytest.raises(ClosedError):
            request.wait()


def test_abort_stops_everything_and_waits_for_nothing(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = started(network, 3)
    network.abort()
    network.abort()
    assert network.is_closed
    for request in requests:
        with pytest.raises(ClosedError, match="network 'tiny' was closed"):
            _ = request.results
    assert [request._state for request in requests] == ["cancelled", "cancelled", "idle"]
    finish(held)
    network.close()


def test_a_draining_close_waits_for_the_callback(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    request = network.create_infer_request()
    may_go, told = threading.Event(), []

    def callback(_request: aioinfer.InferRequest, error: BaseException | None) -> None:
        may_go.wait(WAIT_S)
        told.append(error)

    request.set_callback(callback)
    request.start_async(X)
    closing = threading.Thread(target=network.close)
    closing.start()
    may_go.set()
    closing.join(WAIT_S)
    assert told == [None]
    assert request.wait()
