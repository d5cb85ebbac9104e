"""What a queue promises of its items: each is told, ends once, and gives its request back idle."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import ref

import anyio
import numpy as np
import pytest

import aioinfer
from aioinfer import AsyncInferQueue
from aioinfer.errors import (
    DeadlineExceededError,
    PropertyError,
    RequestCancelledError,
    RequestStateError,
)
from aioinfer.runtime.network import async_infer_queue
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.event_loops import EVERY_LOOP, Run, current_loop, settle
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0
X = np.array([[1, -2, 3]], np.float32)
FOLDER = str(Path(async_infer_queue.__file__).parent)
QUEUE_FILES = ("async_infer_queue.py", "idle_requests.py")
SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to a thread")


class PlantedError(Exception):
    """What a device or a callback raises."""


class Userdata:
    """Goes when nothing holds it."""


@pytest.fixture
def quick(core: aioinfer.Core) -> aioinfer.ExecutableNetwork:
    return core.load_network(tiny_model(), "REFERENCE")


NOWHERE = 0
"""Where none comes; gone to first, as CPython 3.12.1 shows no instruction of a first call."""


def interrupt_at(place: int, call: Callable[[], object]) -> bool:
    """Call with Ctrl-C at the n-th instruction of the queue's code; False: there are fewer."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(QUEUE_FILES):
            return trace if frame.f_code.co_filename.startswith(FOLDER) else None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == place:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    return count >= place


@SIGNALS
def test_an_interrupt_at_any_instruction_of_a_start_loses_no_request(
    quick: aioinfer.ExecutableNetwork,
) -> None:
    queue, told = AsyncInferQueue(quick, 1), list[int]()
    queue.set_callback(lambda _request, number: told.append(number))
    place, is_on = NOWHERE, True
    while is_on:
        try:
            is_on = interrupt_at(place, lambda number=place: queue.start_async(X, number))
        except KeyboardInterrupt:
            pass
        else:
            assert not is_on or place == NOWHERE, "the interrupt got lost"
        queue.wait_all()
        assert queue.is_ready()
        assert "idle" in repr(queue[0])
        place += 1
    assert place > 200
    assert 0 < len(told) < place
    assert told == sorted(set(told))


@SIGNALS
def test_an_interrupt_at_any_instruction_of_wait_all_loses_no_error(
    quick: aioinfer.ExecutableNetwork,
) -> None:
    queue = AsyncInferQueue(quick, 1)
    place, is_on = NOWHERE, True
    while is_on:
        queue.start_async(X, deadline_s=0)
        caught: BaseException | None = None
        try:
            is_on = interrupt_at(place, queue.wait_all)
        except KeyboardInterrupt as interrupt:
            caught = interrupt.__context__
            while caught is not None and not isinstance(caught, ExceptionGroup):
                caught = caught.__context__
        except ExceptionGroup as group:
            is_on, caught = place == NOWHERE, group
        if caught is None:
            with pytest.raises(ExceptionGroup) as kept:
                queue.wait_all()
            caught = kept.value
        assert [type(error) for error in caught.exceptions] == [DeadlineExceededError]
        queue.wait_all()
        place += 1
    assert place > 50


@SIGNALS
def test_an_interrupt_wakes_a_thread_that_waits_for_a_request(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(network, 1)
    queue.start_async(X, "first")
    main, is_over = threading.main_thread().ident, threading.Event()
    assert main is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not queue._idle._waiting:
            assert not queue.is_ready()
        while queue._idle._waiting:  # one that comes just before a thread blocks does not wake it
            signal.pthread_kill(main, signal.SIGINT)
            is_over.wait(0.05)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.start_async(X, "second")
    finally:
        thread.join(WAIT_S)
        signal.signal(signal.SIGINT, before)
    assert not queue._idle._waiting
    assert queue.userdata == ["first"]
    held[0].held.release()
    queue.wait_all()
    assert queue.is_ready()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("is_in_flight", [False, True])
@pytest.mark.parametrize("has_callback", [False, True])
def test_a_queue_that_nobody_holds_goes_with_its_last_item(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    is_in_flight: bool,
    has_callback: bool,
) -> None:
    queue, is_told, userdata = AsyncInferQueue(network, 2), threading.Event(), Userdata()
    if has_callback:
        queue.set_callback(lambda _request, _userdata: is_told.set())
    requests, gone, data_gone = list(queue), ref(queue), ref(userdata)
    queue.start_async(X, userdata)
    if not is_in_flight:
        held[0].held.release()
        queue.wait_all()
    del queue, userdata
    held[0].held.release(held[0].held.waiting_count)
    assert requests[0].wait(WAIT_S)
    assert not has_callback or is_told.wait(WAIT_S)
    requests.clear()
    assert gone() is None
    assert data_gone() is None
    assert not gc.isenabled()


@EVERY_LOOP
def test_a_deadline_counts_from_the_call_though_no_request_is_idle(
    run: Run, held: MockDevices, network: aioinfer.ExecutableNetwork, clock: VirtualTimer
) -> None:
    queue = AsyncInferQueue(network, 1)

    errors: list[BaseException] = []

    async def second() -> None:
        try:
            await queue.start(X, "second", deadline_s=1.0)
        except DeadlineExceededError as error:
            errors.append(error)

    async def main() -> None:
        await queue.start(X, "first")
        async with anyio.create_task_group() as group:
            group.start_soon(second)
            await settle()
            clock.advance(1.0)
        (error,) = errors
        assert str(error).startswith("an item of the queue over network 'tiny' did not finish")
        async with anyio.create_task_group() as group:
            group.start_soon(second)
            await settle()
            clock.advance(0.75)
            held[0].held.release()
        clock.advance(0.25)
        held[0].held.release()
        with pytest.raises(ExceptionGroup) as caught:
            await queue.wait_all_async()
        assert [type(error) for error in caught.value.exceptions] == [DeadlineExceededError]
        assert len(errors) == 1, "the other was started"

    run(main)
    assert not queue._idle._waiting


def test_a_thread_that_waits_too_long_for_a_request_is_told_so(
    held: MockDevices, network: aioinfer.ExecutableNetwork, clock: VirtualTimer
) -> None:
    queue = AsyncInferQueue(network, 1)
    queue.start_async(X, "first")
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(queue.start_async, X, "second", deadline_s=1.0)
        while not queue._idle._waiting:
            assert not second.done()
        clock.advance(1.0)
        with pytest.raises(DeadlineExceededError, match="it was waiting for an idle request"):
            second.result(WAIT_S)
    assert queue.userdata == ["first"]
    held[0].held.release()
    queue.wait_all()


def test_an_item_that_is_late_is_told_at_once_and_its_request_comes_back_idle(
    held: MockDevices, network: aioinfer.ExecutableNetwork, clock: VirtualTimer
) -> None:
    queue, is_told = AsyncInferQueue(network, 1), threading.Event()
    told: list[Any] = []

    def look(request: aioinfer.InferRequest, name: str) -> None:
        try:
            told.append((name, request.userdata, request.results["y"].sum()))
        except DeadlineExceededError as error:
            told.append((name, request.userdata, error))
        is_told.set()

    queue.set_callback(look)
    queue.start_async(X, "late", deadline_s=1.0)
    clock.advance(1.0)
    assert is_told.wait(WAIT_S)
    assert not queue.is_ready(), "its device is still busy"
    held[0].held.release()
    queue.wait_all()  # the callback has dealt with the error
    queue.start_async(X, "in time")
    held[0].held.release()
    queue.wait_all()
    error = told[0][2]
    assert type(error) is DeadlineExceededError
    assert told == [
        ("late", "late", error),
        ("in time", "in time", expected(X).sum()),
    ]


def test_a_callback_of_a_late_item_starts_the_next_one_on_its_request(
    held: MockDevices, network: aioinfer.ExecutableNetwork, clock: VirtualTimer
) -> None:
    queue, started = AsyncInferQueue(network, 1), threading.Event()
    told: list[Any] = []

    def follow(request: aioinfer.InferRequest, number: int) -> None:
        if number == 0:
            queue.start_async(X, 1)
            started.set()
        told.append(number)

    queue.set_callback(follow)
    queue.start_async(X, 0, deadline_s=1.0)
    clock.advance(1.0)
    assert started.wait(WAIT_S)
    assert held[0].held.waiting_count == 1
    held[0].held.release()
    assert held[0].held.waiting_count == 1
    assert not queue.is_ready()
    held[0].held.release()
    with pytest.raises(ExceptionGroup) as caught:  # nobody has asked for the results of the first
        queue.wait_all()
    assert [type(error) for error in caught.value.exceptions] == [DeadlineExceededError]
    assert told == [0, 1]


@pytest.mark.parametrize("way", ["deals", "ignores", "lets out", "raises"])
def test_errors_that_a_callback_has_not_dealt_with_are_raised_in_the_end(
    held: MockDevices, network: aioinfer.ExecutableNetwork, way: str
) -> None:
    queue, told = AsyncInferQueue(network, 1), list[str]()

    def look(request: aioinfer.InferRequest, name: str) -> None:
        told.append(name)
        if way == "raises":
            raise PlantedError
        if way == "lets out":
            _ = request.results
        if way == "deals":
            with pytest.raises(RequestCancelledError):
                _ = request.results

    queue.set_callback(look)
    queue.start_async(X, "item")
    queue[0].cancel()
    held[0].held.release()
    kept: list[type[BaseException]] = []
    try:
        queue.wait_all()
    except ExceptionGroup as group:
        kept = [type(error) for error in group.exceptions]
    wanted = {"deals": [], "raises": [RequestCancelledError, PlantedError]}
    assert kept == wanted.get(way, [RequestCancelledError])
    assert told == ["item"]
    queue.wait_all()


def test_who_takes_a_request_out_of_the_queue_cannot_break_it(
    quick: aioinfer.ExecutableNetwork,
) -> None:
    queue, told = AsyncInferQueue(quick, 1), list[Any]()
    queue.set_callback(lambda _request, name: told.append(name))
    queue[0].set_callback(lambda request, _error: told.append(request.userdata))
    queue.start_async(X, "an item")
    queue.wait_all()
    queue[0].start_async(X, "a run")
    queue[0].wait(WAIT_S)
    queue.start_async(X, "another item")
    queue.wait_all()
    assert told == ["an item", "a run", "another item"]


def test_items_run_over_several_devices(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "HETERO:REFERENCE.0,REFERENCE.1")
    queue, seen = AsyncInferQueue(network, 2), dict[int, Any]()
    queue.set_callback(lambda request, number: seen.update({number: request.results["y"]}))
    for number in range(20):
        queue.start_async(X * number, number)
    queue.wait_all()
    assert all(np.array_equal(seen[number], expected(X * number)) for number in range(20))


@EVERY_LOOP
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_callbacks_on_a_loop_start_items_though_the_queue_is_full(
    run: Run, quick: aioinfer.ExecutableNetwork, is_coroutine: bool
) -> None:
    queue, seen = AsyncInferQueue(quick, 1), list[tuple[int, float]]()

    def follow(request: aioinfer.InferRequest, number: int) -> None:
        seen.append((number, request.results["y"].sum()))
        if number < 20:
            assert queue.get_idle_request_id() == 0
            queue.start_async(X * number, number + 1)
            with pytest.raises(RequestStateError, match="would stop this event loop"):
                queue.start_async(X)

    async def follow_later(request: aioinfer.InferRequest, number: int) -> None:
        if number < 20:
            await queue.start(X * number, number + 1)
            await settle(2)  # the next one may end meanwhile
        seen.append((number, request.results["y"].sum()))

    async def main() -> None:
        queue.set_callback(follow_later if is_coroutine else follow, current_loop())
        await queue.start(X * 0, 0)
        while len(seen) < 21:
            await queue.wait_all_async()

    run(main)
    wanted = [(number, expected(X * max(0, number - 1)).sum()) for number in range(21)]
    assert sorted(seen) == wanted
    assert queue.is_ready()


@EVERY_LOOP
def test_what_a_coroutine_raises_is_raised_in_the_end(
    run: Run, quick: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(quick, 1)

    async def fail(_request: aioinfer.InferRequest, _userdata: Any) -> None:
        await settle(1)
        raise PlantedError

    async def main() -> None:
        queue.set_callback(fail, current_loop())
        await queue.start(X)
        with pytest.raises(ExceptionGroup) as caught:
            await queue.wait_all_async()
        assert [type(error) for error in caught.value.exceptions] == [PlantedError]

    run(main)


def test_a_coroutine_function_without_a_loop_is_refused_at_once(
    quick: aioinfer.ExecutableNetwork,
) -> None:
    async def look(_request: aioinfer.InferRequest, _userdata: Any) -> None: ...

    with pytest.raises(PropertyError, match="coroutine function, which an event loop has to run"):
        AsyncInferQueue(quick).set_callback(look)
