"""When callbacks come, and where: before the device is done, on threads of ours and on loops."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any
from weakref import ref

import numpy as np
import pytest
import trio

import aioinfer
from aioinfer.errors import (
    AioInferError,
    ClosedError,
    DeadlineExceededError,
    PropertyError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
)
from aioinfer.runtime.runs import run as run_module
from aioinfer.runtime.runs.parked_run import ParkedRun
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.event_loops import EVERY_LOOP, Run, current_loop, settle
from unit.runtime.held_runs import X, finish
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0

TOLD = contextvars.ContextVar("TOLD", default="nothing")


class PlantedError(Exception):
    """What a callback raises."""


class Told:
    """A callback that keeps what it is told, and lets a test wait for it."""

    def __init__(self, then: Callable[[aioinfer.InferRequest], None] | None = None) -> None:
        self.errors: list[BaseException | None] = []
        self._then, self._comes = then, threading.Semaphore(0)

    def __call__(self, request: aioinfer.InferRequest, error: BaseException | None) -> None:
        self.errors.append(error)
        if self._then is not None:
            self._then(request)
        self._comes.release()

    def next(self) -> BaseException | None:
        assert self._comes.acquire(timeout=WAIT_S)
        return self.errors[-1]


@pytest.fixture
def request_(network: aioinfer.ExecutableNetwork, clock: VirtualTimer) -> aioinfer.InferRequest:
    return network.create_infer_request()


@pytest.fixture
def quick(core: aioinfer.Core) -> aioinfer.InferRequest:
    """One whose runs end by themselves."""
    return core.load_network(tiny_model(), "REFERENCE").create_infer_request()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


STOPS: dict[str, tuple[Callable[..., Any], type[Exception]]] = {
    "cancel": (lambda request, _clock, _network: request.cancel(), RequestCancelledError),
    "deadline": (lambda _request, clock, _network: clock.advance(1.0), DeadlineExceededError),
    "abort": (lambda _request, _clock, network: network.abort(), ClosedError),
}
EVERY_STOP = pytest.mark.parametrize("stop", STOPS)


@EVERY_STOP
def test_what_stops_a_run_is_told_at_once_and_waited_for_to_the_end(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    request_: aioinfer.InferRequest,
    clock: VirtualTimer,
    stop: str,
) -> None:
    do, error = STOPS[stop]
    seen: list[Any] = []

    def look(request: aioinfer.InferRequest) -> None:
        with pytest.raises(error):
            _ = request.results
        seen.append((request.userdata, request.latency_s > 0, "cancelled" in repr(request)))

    told = Told(look)
    request_.set_callback(told)
    request_.start_async(X, "mine", deadline_s=1.0)
    do(request_, clock, network)
    assert type(told.next()) is error
    assert seen == [("mine", True, True)]
    assert held[0].held.waiting_count == 1, "the device is still busy"
    assert not request_.wait(0)
    finish(held)
    with pytest.raises(error) as raised:
        request_.wait(WAIT_S)
    assert told.errors == [raised.value]
    with pytest.raises(error, match=re.escape(str(raised.value))):
        request_.wait(WAIT_S)
    assert network.admission.runs == set()


def test_a_run_that_ends_while_its_callback_goes_on_has_ended_with_that(
    held: MockDevices, request_: aioinfer.InferRequest
) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def look(_request: aioinfer.InferRequest) -> None:
        is_in.set()
        assert may_go.wait(WAIT_S)

    request_.set_callback(Told(look))
    request_.start_async(X)
    request_.cancel()
    assert is_in.wait(WAIT_S)
    finish(held)
    assert "idle" in repr(request_)
    assert not request_.wait(0)
    may_go.set()
    with pytest.raises(RequestCancelledError):
        request_.wait(WAIT_S)


def test_a_start_that_is_refused_is_raised_and_not_told(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 0})
    others = [network.create_infer_request() for _ in range(2)]
    for other in others:
        other.start_async(X)
    request, told = network.create_infer_request(), Told()
    request.set_callback(told)
    for deadline_s in (None, 0.0):
        with pytest.raises(AioInferError):
            request.start_async(X, deadline_s=deadline_s)
    finish(held)
    others[0].set_callback(told)
    others[0].start_async(X, deadline_s=0.0)
    assert type(told.next()) is DeadlineExceededError
    finish(held)
    assert len(told.errors) == 1


def test_a_callback_may_restart_a_late_request_which_waits_for_the_device(
    held: MockDevices, request_: aioinfer.InferRequest, clock: VirtualTimer
) -> None:
    def again(request: aioinfer.InferRequest) -> None:
        if request.userdata == "first":
            request.start_async(X * 2, "second")
            with pytest.raises(RequestBusyError):
                request.start_async(X * 3, "third")

    told = Told(again)
    request_.set_callback(told)
    request_.start_async(X, "first", deadline_s=1.0)
    clock.advance(1.0)
    assert type(told.next()) is DeadlineExceededError
    assert held[0].held.waiting_count == 1, "the second one is no work for the device yet"
    with pytest.raises(RequestBusyError):
        request_.start_async(X)
    held[0].held.release()
    assert held[0].held.waiting_count == 1
    held[0].held.release()
    assert told.next() is None
    assert request_.wait(WAIT_S)
    assert request_.userdata == "second"
    np.testing.assert_array_equal(request_.results["y"], expected(X * 2))
    assert len(told.errors) == 2


@EVERY_STOP
def test_a_run_that_waits_for_the_device_is_told_at_once_and_may_be_followed(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    request_: aioinfer.InferRequest,
    clock: VirtualTimer,
    stop: str,
) -> None:
    do, error = STOPS[stop]

    def again(request: aioinfer.InferRequest) -> None:
        if request.userdata < 3 and not network.is_closed:
            request.start_async(X * request.userdata, request.userdata + 1, deadline_s=1.0)

    told = Told(again)
    request_.set_callback(told)
    request_.start_async(X, 1)
    request_.cancel()
    assert type(told.next()) is RequestCancelledError
    do(request_, clock, network)
    assert type(told.next()) is error
    assert held[0].held.waiting_count == 1, "the device has only ever had the first"
    held[0].held.release()
    if stop == "abort":
        assert network.close(timeout_s=WAIT_S)
    else:
        assert held[0].held.waiting_count == 1
        held[0].held.release()
        assert told.next() is None
        np.testing.assert_array_equal(request_.results["y"], expected(X * 2))
    assert network.admission.runs == set()
    assert len(network.admission._idle) == network.admission.slot_count or network.is_closed
    statistics = network.statistics()
    assert statistics.finished_request_count == (stop != "abort")


def test_a_parked_run_is_counted_if_the_device_is_free_while_it_is_stopped(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    request_: aioinfer.InferRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settle_stopped = run_module.Run._settle_stopped

    def settle_and_free(run: run_module.Run) -> None:
        settle_stopped(run)
        if run.is_parked:
            held[0].held.release()

    monkeypatch.setattr(run_module.Run, "_settle_stopped", settle_and_free)
    told = Told(lambda request: request.userdata == 1 and request.start_async(X, 2))
    request_.set_callback(told)
    request_.start_async(X, 1)
    request_.cancel()
    assert type(told.next()) is RequestCancelledError
    request_.cancel()
    assert type(told.next()) is RequestCancelledError
    with pytest.raises(RequestCancelledError):
        request_.wait(WAIT_S)
    assert network.statistics().cancelled_request_count == 2


def test_a_parked_run_ends_whose_callback_has_another_one_wait_in_its_place(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    request_: aioinfer.InferRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave, is_replaced = ParkedRun._leave, threading.Event()

    def leave_late(parked: ParkedRun) -> None:
        assert is_replaced.wait(WAIT_S)
        leave(parked)

    def start_next(request: aioinfer.InferRequest) -> None:
        number = request.userdata
        if number < 3:
            request.start_async(X, number + 1)
        if number == 2:
            is_replaced.set()

    monkeypatch.setattr(ParkedRun, "_leave", leave_late)
    told = Told(start_next)
    request_.set_callback(told)
    request_.start_async(X, 1)
    request_.cancel()
    assert type(told.next()) is RequestCancelledError
    request_.cancel()
    assert type(told.next()) is RequestCancelledError
    held[0].held.release()
    held[0].held.release()
    assert told.next() is None
    assert network.close(timeout_s=WAIT_S)


def test_a_network_that_drains_ends_a_parked_run_with_its_error(
    held: MockDevices, network: aioinfer.ExecutableNetwork, request_: aioinfer.InferRequest
) -> None:
    told = Told(lambda request: request.userdata or request.start_async(X, "parked"))
    request_.set_callback(told)
    request_.start_async(X)
    request_.cancel()
    told.next()
    assert not network.close(timeout_s=0)
    held[0].held.release()
    assert type(told.next()) is ClosedError
    assert network.close(timeout_s=WAIT_S)


@EVERY_LOOP
def test_a_callback_runs_on_the_loop_that_is_given_in_the_context_of_the_start(
    run: Run, quick: aioinfer.InferRequest
) -> None:
    seen: list[Any] = []

    def look(request: aioinfer.InferRequest, error: BaseException | None) -> None:
        seen.append((threading.current_thread(), current_loop(), TOLD.get(), error))
        seen.append(request.results["y"].sum())
        TOLD.set("inside")

    async def main() -> None:
        TOLD.set("outside")
        quick.set_callback(look, current_loop())
        quick.start_async(X)
        await quick.wait_async()
        assert seen[0] == (threading.current_thread(), current_loop(), "outside", None)
        assert seen[1] == expected(X).sum()
        assert TOLD.get() == "outside"

    run(main)


@EVERY_LOOP
def test_a_coroutine_is_told_of_its_run_though_it_starts_another(
    run: Run, quick: aioinfer.InferRequest
) -> None:
    seen: list[Any] = []

    async def look(request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        if request.userdata == "first":
            request.start_async(X * 100, "second")
            await request.wait_async()
        seen.append((request.userdata, request.results["y"].sum()))

    async def main() -> None:
        quick.set_callback(look, current_loop())
        quick.start_async(X, "first")
        first = quick._run
        assert first is not None
        await quick.wait_async()
        while not first.has_ended:
            await settle(1)

    run(main)
    wanted = [("second", expected(X * 100).sum()), ("first", expected(X).sum())]
    assert seen == wanted
    assert quick.userdata == "second", "no callback is under way"


@EVERY_LOOP
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_what_a_callback_raises_on_a_loop_is_logged_and_raised_by_wait(
    run: Run,
    quick: aioinfer.InferRequest,
    caplog: pytest.LogCaptureFixture,
    is_coroutine: bool,
) -> None:
    def fail(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        raise PlantedError

    async def fail_later(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        await settle()
        raise PlantedError

    async def main() -> None:
        quick.set_callback(fail_later if is_coroutine else fail, current_loop())
        quick.start_async(X)
        with pytest.raises(PlantedError):
            await quick.wait_async()

    run(main)
    (record,) = caplog.records
    assert record.message == "the callback of request 0 of 'tiny' on REFERENCE.0 has failed"
    assert record.exc_info is not None
    assert record.exc_info[0] is PlantedError


async def never(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("when", ["before", "queued", "suspended"])
def test_a_loop_that_closes_loses_the_callback_and_not_the_run(
    held: MockDevices,
    request_: aioinfer.InferRequest,
    loop: asyncio.AbstractEventLoop,
    caplog: pytest.LogCaptureFixture,
    when: str,
) -> None:
    class Userdata:
        """Goes when nothing holds it."""

    userdata = Userdata()
    gone = ref(userdata)
    request_.set_callback(never, loop)
    request_.start_async(X, userdata)
    if when == "before":
        loop.close()
    finish(held)
    if when == "suspended":
        loop.run_until_complete(settle())
    loop.close()
    assert request_.wait(WAIT_S)
    np.testing.assert_array_equal(request_.results["y"], expected(X))
    (record,) = caplog.records
    wanted = "was not called" if when == "before" else "did not come to its end"
    assert wanted in record.message
    assert "its event loop" in record.message
    request_.set_callback(None)
    request_.start_async(X)
    finish(held)
    del userdata
    assert gone() is None


@EVERY_LOOP
def test_a_callback_that_its_loop_cancels_is_logged_and_the_run_ends(
    run: Run, quick: aioinfer.InferRequest, caplog: pytest.LogCaptureFixture
) -> None:
    async def wait_for_ever(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        is_in.set()
        while True:
            await settle()

    is_in = threading.Event()

    async def main() -> None:
        quick.set_callback(wait_for_ever, current_loop())
        quick.start_async(X)
        while not is_in.is_set():
            await settle()

    run(main)
    assert quick.wait(WAIT_S)
    (record,) = caplog.records
    assert "was cancelled before it had ended" in record.message


def test_a_trio_run_that_is_over_loses_the_callback_and_not_the_run(
    quick: aioinfer.InferRequest, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Any:
        return trio.lowlevel.current_trio_token()

    quick.set_callback(Told(), trio.run(main))
    quick.start_async(X)
    assert quick.wait(WAIT_S)
    (record,) = caplog.records
    assert "was not called, for its event loop is closed" in record.message


def plain(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
    """A callback."""


class AsyncCallable:
    async def __call__(self, _request: aioinfer.InferRequest, _error: Any) -> None:
        """A callback that needs a loop."""


async def generate(_request: aioinfer.InferRequest, _error: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("callback", "loop", "says"),
    [
        (3, None, "the callback is int; give a function of a request and its error or None"),
        (never, None, r"is a coroutine function, .* call set_callback\(callback, loop\)"),
        (partial(never), None, "is a coroutine function"),
        (AsyncCallable(), None, "is a coroutine function"),
        (generate, None, "is an asynchronous generator"),
        (generate, trio, "is an asynchronous generator"),
        (plain, 3, "loop is int; give an asyncio event loop"),
    ],
)
def test_what_cannot_be_called_back_is_refused_at_once(
    quick: aioinfer.InferRequest, callback: Any, loop: Any, says: str
) -> None:
    with pytest.raises(PropertyError, match=says) as caught:
        quick.set_callback(callback, loop)
    assert (caught.value.device, caught.value.network) == ("REFERENCE.0", "tiny")


def test_a_closed_loop_is_refused_at_once(
    quick: aioinfer.InferRequest, loop: asyncio.AbstractEventLoop
) -> None:
    loop.close()
    with pytest.raises(PropertyError, match="is closed; give one that runs, or None"):
        quick.set_callback(plain, loop)


def test_a_coroutine_that_no_loop_was_given_for_is_the_callbacks_error(
    quick: aioinfer.InferRequest,
) -> None:
    quick.set_callback(lambda request, error: never(request, error))
    quick.start_async(X)
    with pytest.raises(RequestStateError, match="returned a coroutine, which no event loop"):
        quick.wait(WAIT_S)


@EVERY_LOOP
def test_a_loop_that_is_stopped_by_wait_or_close_is_not_waited_for(
    run: Run, held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request, told = network.create_infer_request(), Told()

    async def main() -> None:
        request.set_callback(told, current_loop())
        request.start_async(X)
        with pytest.raises(RequestStateError, match=r"call back on; `await request.wait_async\(\)"):
            request.wait()
        finish(held)
        assert network.close(timeout_s=WAIT_S)
        assert told.errors == []
        await request.wait_async()
        assert told.errors == [None]

    run(main)


def test_a_plain_thread_waits_for_a_callback_on_a_loop(quick: aioinfer.InferRequest) -> None:
    told: list[str] = []

    async def callback(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        await asyncio.sleep(0)
        told.append(threading.current_thread().name)

    async def main() -> None:
        quick.set_callback(callback, asyncio.get_running_loop())
        quick.start_async(X)
        assert await asyncio.to_thread(quick.wait, WAIT_S)
        assert told == [threading.current_thread().name]

    asyncio.run(main())


def test_a_run_that_expires_before_the_device_is_free_leaves_its_request_to_be_started() -> None:
    devices = MockDevices(1)
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(tiny_model(), "MOCK")
        request = network.create_infer_request()
        told: SimpleQueue[BaseException | None] = SimpleQueue()
        starts = iter([{"deadline_s": 0.0}])

        def callback(request: aioinfer.InferRequest, error: BaseException | None) -> None:
            for limits in starts:  # in the first call, while the device has the cancelled run
                request.start_async(X, **limits)
            told.put(error)

        request.set_callback(callback)
        request.start_async(X)
        request.cancel()
        errors = [told.get(timeout=WAIT_S) for _ in range(2)]
        assert {type(error) for error in errors} == {RequestCancelledError, DeadlineExceededError}
        request.start_async(X)
        devices[0].held.release()
        devices[0].held.release()
        assert told.get(timeout=WAIT_S) is None
        assert request.wait(WAIT_S)
        statistics = network.statistics()
    assert statistics.expired_request_count == statistics.cancelled_request_count == 1
    assert statistics.finished_request_count == 1
