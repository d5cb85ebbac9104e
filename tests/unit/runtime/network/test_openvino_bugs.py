"""What OpenVINO's requests, callbacks and queues are known to get wrong: a test for each.

The names of the cases say what is wrong there; #n is an issue of openvinotoolkit/openvino.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer import AsyncInferQueue
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    OverloadedError,
    PropertyError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from aioinfer.testing import MockDevice, MockDevices, VirtualTimer
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0
X = np.array([[1, -2, 3]], np.float32)


class World:
    """A network on a device that waits for the test, and one that computes."""

    def __init__(self, core: aioinfer.Core, held: MockDevices) -> None:
        self.core = core
        self.slow = core.load_network(tiny_model(), "MOCK.0")
        self.quick = core.load_network(tiny_model(), "REFERENCE")
        self.device: MockDevice = held[0]

    def ran(self, request: aioinfer.InferRequest, given: np.ndarray = X) -> None:
        """Run it, and look at what it gives."""
        request.start_async(given)
        if request.is_of(self.slow):
            self.device.held.release()
        request.wait()
        np.testing.assert_array_equal(request.results["y"], expected(given))


@pytest.fixture
def world(core: aioinfer.Core, held: MockDevices) -> World:
    return World(core, held)


def cancel_is_a_flag_that_nobody_reads(world: World) -> None:
    first, second = (world.slow.create_infer_request() for _ in range(2))
    first.start_async(X)
    second.start_async(X)
    second.cancel()
    with pytest.raises(RequestCancelledError):
        _ = second.results
    world.device.held.release(2)
    with pytest.raises(RequestCancelledError):
        second.wait()
    assert first.wait()
    world.ran(second)


def a_timeout_leaves_the_request_running_and_a_cancel_hangs(world: World) -> None:
    clock = world.slow.clock = VirtualTimer()
    request = world.slow.create_infer_request()
    request.start_async(X, deadline_s=1.0)
    clock.advance(2.0)
    with pytest.raises(DeadlineExceededError):
        _ = request.results
    request.cancel()
    assert not request.wait(0.0), "it says so while the device has it"
    world.device.held.release()
    with pytest.raises(DeadlineExceededError):
        request.wait()
    world.ran(request)


def a_run_that_a_callback_starts_ends_without_a_callback(world: World) -> None:
    request, told = world.quick.create_infer_request(), list[int]()

    def call_back(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        told.append(len(told))
        if len(told) < 10:
            request.start_async(X)

    request.set_callback(call_back)
    request.start_async(X)
    while len(told) < 10:
        request.wait()
    assert told == list(range(10))


def completion_runs_on_another_thread_where_a_stage_is_refused(world: World) -> None:
    threads, refused = list[int](), world.quick.create_infer_request()
    seen: list[BaseException | None] = []

    def call_back(_request: aioinfer.InferRequest, error: BaseException | None) -> None:
        threads.append(threading.get_ident())
        seen.append(error)

    refused.set_callback(call_back)
    refused.start_async(X)
    refused.wait()
    stage = next(iter(world.quick.admission._idle)).stages[0]
    run, error = stage.executor.run, DeviceError("refused")
    stage.executor.run = _raising(error)  # type: ignore[method-assign]
    try:
        refused.start_async(X)
        with pytest.raises(DeviceError, match="refused"):
            refused.wait()
    finally:
        stage.executor.run = run  # type: ignore[method-assign]
    assert seen == [None, error]
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads


def _raising(error: BaseException) -> Callable[..., None]:
    def run(*_: object) -> None:
        raise error

    return run


def a_queue_is_poisoned_by_its_first_error(world: World) -> None:
    queue, told = AsyncInferQueue(world.slow, 2), list[Any]()
    queue.set_callback(lambda request, number: told.append(number))
    for number in range(2):
        queue.start_async(X, number)
    world.device.held.fail(DeviceError("once"))
    world.device.held.release()
    with pytest.raises(ExceptionGroup) as caught:
        queue.wait_all()
    assert [str(error) for error in caught.value.exceptions] == ["once"]
    queue.wait_all()
    queue.start_async(X, 2)
    world.device.held.release()
    queue.wait_all()
    assert sorted(told) == [0, 1, 2], "the one that failed, too"


def the_callback_of_an_item_that_fails_is_not_called(world: World) -> None:
    queue, seen = AsyncInferQueue(world.slow, 1), list[BaseException]()

    def call_back(request: aioinfer.InferRequest, _userdata: object) -> None:
        try:
            _ = request.results
        except DeviceError as error:
            seen.append(error)

    queue.set_callback(call_back)
    queue.start_async(X)
    error = DeviceError("no")
    world.device.held.fail(error)
    queue.wait_all()
    assert seen == [error], "it has dealt with it"


def an_error_that_nobody_waited_for_disappears(world: World) -> None:
    records: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    handler, log = Kept(), logging.getLogger("aioinfer")
    log.addHandler(handler)
    try:
        request = world.slow.create_infer_request()
        request.start_async(X)
        world.device.held.fail(DeviceError("unseen"))
        request._run.wait_until_ended(WAIT_S)  # type: ignore[union-attr]
        del request
        gc.collect()
    finally:
        log.removeHandler(handler)
    assert any("never retrieved" in text and "unseen" in text for text in records), records


def a_start_after_shutdown_does_nothing(world: World) -> None:
    request = world.quick.create_infer_request()
    queue = AsyncInferQueue(world.quick, 1)
    world.quick.close()
    for start in (request.start_async, queue.start_async):
        with pytest.raises(ClosedError):
            start(X)


def callers_of_a_network_share_one_request_and_get_busy(world: World) -> None:
    async def infer() -> list[Any]:
        return await asyncio.gather(*(world.quick.infer(X * number) for number in range(20)))

    for number, results in enumerate(asyncio.run(infer())):
        np.testing.assert_array_equal(results["y"], expected(X * number))


def inputs_are_freed_while_the_device_reads_them(world: World) -> None:
    request, given = world.slow.create_infer_request(), X.copy()
    kept = ref(given)
    request.start_async(given)
    del given
    gc.collect()
    assert kept() is not None
    world.device.held.release()
    request.wait()
    np.testing.assert_array_equal(request.results["y"], expected(X))
    gc.collect()
    assert kept() is None, "and no longer than that"


def the_destructor_waits_for_a_thread_that_needs_the_gil(world: World) -> None:
    entered, told = threading.Event(), threading.Event()

    def call_back(_request: aioinfer.InferRequest, _userdata: object) -> None:
        entered.set()
        told.wait(WAIT_S)

    queue = AsyncInferQueue(world.slow, 1)
    queue.set_callback(call_back)
    queue.start_async(X)
    world.device.held.release()
    assert entered.wait(WAIT_S)
    del queue  # its callback goes on, and would wait for this thread
    gc.collect()
    told.set()


def a_callback_that_raises_hangs_who_waits(world: World) -> None:
    request, error = world.quick.create_infer_request(), ValueError("in a callback")

    def call_back(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        raise error

    request.set_callback(call_back)
    request.start_async(X)
    with pytest.raises(ValueError, match="in a callback"):
        request.wait()
    request.set_callback(None)
    world.ran(request)


def two_threads_get_the_same_idle_request(world: World) -> None:
    queue, told = AsyncInferQueue(world.quick, 3), list[int]()
    queue.set_callback(lambda request, number: told.append(number))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: queue.start_async(X * number, number), range(200)))
    queue.wait_all()
    assert sorted(told) == list(range(200))


def a_second_start_of_a_busy_request_is_a_race(world: World) -> None:
    request = world.slow.create_infer_request()
    request.start_async(X)
    for _ in range(5):
        with pytest.raises(RequestBusyError):
            request.start_async(X)
    world.device.held.release()
    assert request.wait()


def what_items_were_given_stays_in_memory(world: World) -> None:
    queue = AsyncInferQueue(world.quick, 2)
    queue.set_callback(lambda request, userdata: None)
    kept = []
    for number in range(20):
        given = X * number
        kept.append(ref(given))
        queue.start_async(given, given)
    queue.wait_all()
    del given
    gc.collect()
    alive = sum(item() is not None for item in kept)
    assert alive <= len(queue), "the userdata of each request's last item, and nothing else"


def a_queue_is_iterated_without_end(world: World) -> None:
    queue = AsyncInferQueue(world.quick, 3)
    assert len(list(queue)) == 3
    assert [request.id for request in queue] == [queue[number].id for number in range(3)]
    with pytest.raises(IndexError):
        _ = queue[3]


def wait_returns_before_the_callback_is_over(world: World) -> None:
    request = world.quick.create_infer_request()
    entered, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def call_back(_request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        entered.set()
        assert may_end.wait(WAIT_S)
        ended.set()

    request.set_callback(call_back)
    request.start_async(X)
    assert entered.wait(WAIT_S)
    assert not request.wait(0.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: (request.wait(), ended.is_set()))
        assert not waiting.done()
        may_end.set()
        assert waiting.result(WAIT_S) == (True, True)


def a_full_queue_blocks_who_cannot_wait(world: World) -> None:
    queue = AsyncInferQueue(world.slow, 1)

    async def fill() -> None:
        await queue.start(X)
        with pytest.raises(RequestStateError, match=r"await queue\.start"):
            queue.start_async(X)
        second = asyncio.ensure_future(queue.start(X))
        await asyncio.sleep(0)
        assert not second.done()
        world.device.held.release()
        await second
        world.device.held.release()
        await asyncio.to_thread(queue.wait_all)

    asyncio.run(fill())


def a_queue_over_hetero_is_refused(world: World) -> None:
    with world.core.load_network(tiny_model(), "HETERO:REFERENCE.0,REFERENCE.1") as network:
        queue, seen = AsyncInferQueue(network, 4), dict[int, np.ndarray]()
        queue.set_callback(lambda request, number: seen.update({number: request.results["y"]}))
        for number in range(40):
            queue.start_async(X * number, number)
        queue.wait_all()
    for number in range(40):
        np.testing.assert_array_equal(seen[number], expected(X * number))


def a_failed_item_blocks_the_queue_for_ever(world: World) -> None:
    queue = AsyncInferQueue(world.slow, 1)
    errors = 0
    for number in range(6):
        queue.start_async(X, number)
        if number % 2:
            world.device.held.fail(DeviceError(f"item {number}"))
        else:
            world.device.held.release()
    try:
        queue.wait_all()
    except ExceptionGroup as group:
        errors = len(group.exceptions)
    assert errors == 3
    assert queue.is_ready()


def a_core_keeps_settings_that_nobody_knows(world: World) -> None:
    with aioinfer.Core() as core:
        with pytest.raises(PropertyError, match="SPED"):
            core.set_config(None, {"SPED": 1})
        core.load_network(tiny_model(), "REFERENCE").close()  # made only now, and given nothing


def keys_that_nobody_knows_are_passed_on_to_some_device(world: World) -> None:
    with pytest.raises(PropertyError, match="HETERO has no property 'SPED'"):
        world.core.load_network(tiny_model(), "HETERO:MOCK.0,REFERENCE", {"SPED": 1})


class OddError(OverflowError):
    """What a kernel of a user raises."""


def errors_lose_their_class_and_cause(world: World) -> None:
    cause = KeyError("why")
    for device in ("MOCK.0", "HETERO:MOCK.0,REFERENCE", "AUTO:MOCK.0"):
        with world.core.load_network(tiny_model(), device) as network:
            request = network.create_infer_request()
            for error in (OddError("odd"), TensorError("bad"), OverloadedError("full")):
                error.__cause__ = cause
                request.start_async(X)
                world.device.held.fail(error)
                with pytest.raises(type(error)) as raised:
                    request.wait(WAIT_S)
                assert type(raised.value) is type(error), device
                assert raised.value is error or raised.value.__cause__ in (error, cause), device


def constants_on_another_device_open_the_shapes_behind_them(world: World) -> None:
    text = """<ir_version: 9, opset_import: ["": 20]> g (float[1, 3] x) => (float[3, 1] y)
        <int64[2] last_first = {1, 0}> {
        [s] s = Shape (x)
        [k] k = Gather (s, last_first)
        [r] r = Reshape (x, k)
        [n] y = Neg (r)
    }"""
    affinity = {name: f"REFERENCE.{name in 'skn':d}" for name in "skrn"}
    division = world.core.divide_network(
        parser.parse_model(text), "HETERO:REFERENCE.0,REFERENCE.1", {"AFFINITY": affinity}
    )
    assert [
        (device, [str(value.type) for value in (*model.inputs, *model.outputs)])
        for device, model in division.subgraph_models()
    ] == [
        ("REFERENCE.0", ["float32[1,3]", "float32[3,1]"]),
        ("REFERENCE.1", ["float32[3,1]", "float32[3,1]"]),
    ]


BUGS: dict[str, Callable[[World], None]] = {
    "#36340 cancel is a flag that nobody reads": cancel_is_a_flag_that_nobody_reads,
    "#30642 a timeout leaves it running, and cancel then hangs": (
        a_timeout_leaves_the_request_running_and_a_cancel_hangs
    ),
    "lost callback of a run that a callback starts": (
        a_run_that_a_callback_starts_ends_without_a_callback
    ),
    "completion on the wrong thread where a hand-over raises": (
        completion_runs_on_another_thread_where_a_stage_is_refused
    ),
    "poisoned queue": a_queue_is_poisoned_by_its_first_error,
    "no callback for an item that fails": the_callback_of_an_item_that_fails_is_not_called,
    "#5461 errors that nobody waited for disappear": an_error_that_nobody_waited_for_disappears,
    "start after shutdown does nothing": a_start_after_shutdown_does_nothing,
    "#2349 #13519 #24509 callers share one request": (
        callers_of_a_network_share_one_request_and_get_busy
    ),
    "#36554 inputs freed while running": inputs_are_freed_while_the_device_reads_them,
    "#24722 destructor waits for what needs the GIL": (
        the_destructor_waits_for_a_thread_that_needs_the_gil
    ),
    "#11075 #11123 hang after an exception in a callback": a_callback_that_raises_hangs_who_waits,
    "#10020 two threads get one idle request": two_threads_get_the_same_idle_request,
    "#10020 a second start is a race": a_second_start_of_a_busy_request_is_a_race,
    "#11727 leak of what items were given": what_items_were_given_stays_in_memory,
    "#13496 iteration": a_queue_is_iterated_without_end,
    "#7374 wait returns before the callback is over": wait_returns_before_the_callback_is_over,
    "#8417 a full queue blocks who cannot wait": a_full_queue_blocks_who_cannot_wait,
    "#11668 queue over HETERO": a_queue_over_hetero_is_refused,
    "settings of the Core that nobody knows are kept": a_core_keeps_settings_that_nobody_knows,
    "keys that nobody knows reach some device": (
        keys_that_nobody_knows_are_passed_on_to_some_device
    ),
    "errors lose their class": errors_lose_their_class_and_cause,
    "#18862 constants elsewhere open shapes": (
        constants_on_another_device_open_the_shapes_behind_them
    ),
    "intel/onnxruntime #679 deadlock after an exception": a_failed_item_blocks_the_queue_for_ever,
}


@pytest.mark.parametrize("bug", BUGS)
def test_it_is_not_so_here(world: World, bug: str) -> None:
    BUGS[bug](world)
