"""A queue of requests, as OpenVINO's users know it, without its traps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import numpy as np
import pytest
import trio

import aioinfer
from aioinfer import AsyncInferQueue
from aioinfer.errors import ClosedError, PropertyError, RequestStateError, TensorError
from aioinfer.testing import MockDevices
from unit.runtime.event_loops import EVERY_LOOP, Run, settle
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0
X = np.array([[1, -2, 3]], np.float32)


class PlantedError(Exception):
    """What a device or a callback raises."""


@pytest.fixture
def network(core: aioinfer.Core) -> aioinfer.ExecutableNetwork:
    return core.load_network(tiny_model(), "REFERENCE")


@pytest.fixture
def slow(core: aioinfer.Core, held: MockDevices) -> aioinfer.ExecutableNetwork:
    """Runs wait on the device until the test lets them end."""
    return core.load_network(tiny_model(), "MOCK.0")


@pytest.mark.parametrize("given", [lambda x: {"x": x}, lambda x: [x], lambda x: x])
@pytest.mark.parametrize("has_queue", [False, True])
def test_inputs_that_are_not_shared_may_be_changed_at_once(
    given: Callable[[np.ndarray], Any],
    has_queue: bool,
    held: MockDevices,
    slow: aioinfer.ExecutableNetwork,
) -> None:
    starter = AsyncInferQueue(slow, 1) if has_queue else slow.create_infer_request()
    mine = X.copy()
    starter.start_async(given(mine), share_inputs=False)
    mine[:] = 7
    held[0].held.release()
    request = starter[0] if isinstance(starter, AsyncInferQueue) else starter
    request.wait()
    np.testing.assert_array_equal(request.results["y"], expected(X))


def test_each_item_ends_in_a_callback_with_its_results_and_userdata(
    network: aioinfer.ExecutableNetwork,
) -> None:
    queue, seen = AsyncInferQueue(network, 3), dict[int, Any]()
    queue.set_callback(lambda request, number: seen.update({number: request.results["y"]}))
    for number in range(50):
        queue.start_async(X * number, number)
    queue.wait_all()
    assert sorted(seen) == list(range(50))
    assert all(np.array_equal(y, expected(X * number)) for number, y in seen.items())
    assert queue.is_ready()
    assert len(queue) == len(list(queue)) == len(queue.userdata) == 3
    assert {queue[number].id for number in range(3)} == {request.id for request in queue}


def test_a_queue_has_as_many_requests_as_keep_the_device_busy(
    network: aioinfer.ExecutableNetwork,
) -> None:
    assert len(AsyncInferQueue(network)) == network.optimal_request_count
    with pytest.raises(PropertyError, match="jobs is -1"):
        AsyncInferQueue(network, -1)
    with pytest.raises(PropertyError, match="jobs is 'many'"):
        AsyncInferQueue(network, "many")  # type: ignore[arg-type]
    with pytest.raises(PropertyError, match="callback is int"):
        AsyncInferQueue(network).set_callback(3)  # type: ignore[arg-type]


def test_a_full_queue_blocks_a_thread_until_an_item_has_ended(
    held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(slow, 1)
    queue.start_async(X, "first")
    assert not queue.is_ready()
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(queue.start_async, X, "second")
        assert queue.userdata == ["first"]
        held[0].held.release()
        second.result(WAIT_S)
    assert queue.userdata == ["second"]
    held[0].held.release()
    queue.wait_all()


def test_errors_of_items_come_together_and_once(
    held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue, seen = AsyncInferQueue(slow, 2), list[str]()
    queue.set_callback(lambda request, name: request.results and seen.append(name))
    queue.start_async(X, "fails")
    queue.start_async(X, "ends well")
    held[0].held.fail(PlantedError("on the device"))
    held[0].held.release()
    with pytest.raises(ExceptionGroup, match="1 of a queue over network 'tiny'") as caught:
        queue.wait_all()
    assert [type(error) for error in caught.value.exceptions] == [PlantedError]
    assert seen == ["ends well"]
    queue.wait_all()
    queue.start_async(X, "later")
    held[0].held.release()
    queue.wait_all()
    assert seen == ["ends well", "later"]


def test_an_item_that_cannot_start_raises_at_once_and_takes_no_request(
    network: aioinfer.ExecutableNetwork,
) -> None:
    queue = AsyncInferQueue(network, 1)
    for _ in range(3):
        with pytest.raises(TensorError):
            queue.start_async(np.zeros((1, 7), np.float32))
    assert queue.is_ready()
    queue.wait_all()


def test_callbacks_start_items_though_the_queue_is_full(
    network: aioinfer.ExecutableNetwork,
) -> None:
    queue, left, seen = AsyncInferQueue(network, 2), [40], list[int]()

    def again(_request: aioinfer.InferRequest, number: int) -> None:
        seen.append(number)
        if left[0]:
            left[0] -= 1
            assert queue.get_idle_request_id() in (0, 1)
            queue.start_async(X, number + 1)

    queue.set_callback(again)
    queue.start_async(X, 0)
    queue.start_async(X, 0)
    queue.wait_all()
    assert len(seen) == 42


def test_a_second_item_of_a_callback_does_not_wait(
    held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(slow, 1)

    def twice(_request: aioinfer.InferRequest, is_first: bool) -> None:
        if is_first:
            queue.start_async(X, False)
            queue.start_async(X, False)

    queue.set_callback(twice)
    queue.start_async(X, True)
    held[0].held.release()
    while not held[0].held.waiting_count:
        assert not queue.is_ready()
    held[0].held.release()
    with pytest.raises(ExceptionGroup) as caught:
        queue.wait_all()
    (error,) = caught.value.exceptions
    assert isinstance(error, RequestStateError)
    assert "start one item in each callback" in str(error)


def test_what_a_callback_raises_is_raised_in_the_end(
    network: aioinfer.ExecutableNetwork,
) -> None:
    queue = AsyncInferQueue(network, 1)

    def fail(_request: aioinfer.InferRequest, _userdata: Any) -> None:
        raise PlantedError

    queue.set_callback(fail)
    queue.start_async(X)
    with pytest.raises(ExceptionGroup) as caught:
        queue.wait_all()
    assert [type(error) for error in caught.value.exceptions] == [PlantedError]


@EVERY_LOOP
def test_an_event_loop_awaits_and_is_never_stopped(
    run: Run, network: aioinfer.ExecutableNetwork
) -> None:
    queue, seen = AsyncInferQueue(network, 2), list[int]()
    queue.set_callback(lambda _request, number: seen.append(number))

    async def main() -> None:
        for number in range(20):
            await queue.start(X, number)
        await queue.wait_all_async()
        for refused in (queue.start_async, queue.wait_all, queue.get_idle_request_id):
            with pytest.raises(RequestStateError, match=r"stop this event loop; await queue\."):
                refused()

    run(main)
    assert sorted(seen) == list(range(20))


async def test_a_cancelled_start_leaves_its_place_and_its_request(
    held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(slow, 1)
    await queue.start(X, "first")
    tasks = [asyncio.create_task(queue.start(X, number)) for number in range(2)]
    await settle()
    tasks[0].cancel()
    await settle()
    held[0].held.release()
    await tasks[1]
    assert queue.userdata == [1]
    third = asyncio.create_task(queue.start(X, 2))
    await settle()
    held[0].held.release()  # the request is given, and the task is cancelled before it knows
    third.cancel()
    await settle()
    assert third.cancelled() or third.done()
    held[0].held.release(held[0].held.waiting_count)
    await queue.wait_all_async()
    assert queue.is_ready()


def test_a_trio_task_that_is_cancelled_gives_its_request_back(
    held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(slow, 1)

    async def main() -> None:
        await queue.start(X)
        with trio.move_on_after(0.01):
            await queue.start(X)
        held[0].held.release()
        await queue.wait_all_async()

    trio.run(main)
    assert queue.is_ready()


def test_items_of_a_closed_network_end_with_its_error(
    held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue = AsyncInferQueue(slow, 1)
    queue.start_async(X)
    slow.abort()
    held[0].held.release()
    with pytest.raises(ExceptionGroup) as caught:
        queue.wait_all()
    assert [type(error) for error in caught.value.exceptions] == [ClosedError]


def test_a_request_that_its_holder_starts_is_not_given_twice(
    network: aioinfer.ExecutableNetwork,
) -> None:
    queue = AsyncInferQueue(network, 1)
    queue[0].start_async(X)
    assert queue[0].wait(WAIT_S)
    assert repr(queue).endswith("1 of 1 requests idle>")
    threads = [threading.Thread(target=queue.start_async, args=(X,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    queue.wait_all()
    assert repr(queue).endswith("1 of 1 requests idle>")


def test_a_callback_never_waits_for_another_queue(network: aioinfer.ExecutableNetwork) -> None:
    queue, other = AsyncInferQueue(network, 1), AsyncInferQueue(network, 1)
    other.set_callback(lambda _request, _userdata: None)

    def feed(_request: aioinfer.InferRequest, _userdata: Any) -> None:
        for _ in range(2):
            other.start_async(X)

    queue.set_callback(feed)
    queue.start_async(X)
    with pytest.raises(ExceptionGroup) as caught:
        queue.wait_all()
    assert "own threads cannot wait" in str(caught.value.exceptions[0])
    other.wait_all()


def test_a_callback_whose_item_cannot_start_keeps_its_request_until_it_is_over(
    network: aioinfer.ExecutableNetwork,
) -> None:
    queue, ended = AsyncInferQueue(network, 1), list[bool]()

    def fail(_request: aioinfer.InferRequest, _userdata: Any) -> None:
        with pytest.raises(TensorError):
            queue.start_async(np.zeros((1, 7), np.float32))
        ended.append(queue.is_ready())

    queue.set_callback(fail)
    queue.start_async(X)
    queue.wait_all()
    assert ended == [False]
    assert queue.is_ready()


def test_the_callback_of_a_holders_run_is_not_an_items(network: aioinfer.ExecutableNetwork) -> None:
    may_go_on, seen = threading.Event(), list[Any]()
    busy = network.create_infer_request()
    busy.set_callback(lambda _request, _error: may_go_on.wait(WAIT_S))
    queue = AsyncInferQueue(network, 1)
    queue.set_callback(lambda request, _userdata: seen.append(request.results["y"]))
    busy.start_async(X)
    queue[0].start_async(X * 100)
    while repr(queue[0]).endswith("busy>"):
        assert not may_go_on.is_set()
    may_go_on.set()
    assert queue[0].wait(WAIT_S)
    queue.start_async(X)
    queue.wait_all()
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], expected(X))


@EVERY_LOOP
def test_waiters_that_are_cancelled_leave_nothing_behind(
    run: Run, held: MockDevices, slow: aioinfer.ExecutableNetwork
) -> None:
    queue, request = AsyncInferQueue(slow, 1), slow.create_infer_request()
    queue.start_async(X)
    request.start_async(X)

    async def main() -> None:
        for wait in (queue.wait_all_async, request.wait_async) * 3:
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await settle()
                group.cancel_scope.cancel()

    run(main)
    assert queue._idle._drained == []
    assert request._run is not None
    assert request._run._ended == []
    held[0].held.release(2)
    queue.wait_all()
