"""What batchers of other systems are known to get wrong: a test for each.

The names of the cases say what is wrong there, and where that was told: repository and issue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import (
    DeadlineExceededError,
    DeviceError,
    NotSupportedError,
    OverloadedError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.testing import MockDevice, MockDevices, VirtualTimer
from unit.runtime.event_loops import settle

WAIT_S = 20.0  # a bound for what must happen; never slept through
HEADER = '<ir_version: 9, opset_import: ["": 20]> g'
RELU = f"{HEADER} (float[b, n] x) => (float[b, n] y) {{ y = Relu (x) }}"
NEG = f"{HEADER} (float[b, n] x) => (float[b, n] y) {{ y = Neg (x) }}"
LOOKUP = f"""{HEADER} (int64[b, n] x) => (float[b, n] y)
    <float[4] table = {{0.0, 10.0, 20.0, 30.0}}> {{ y = Gather (table, x) }}"""
MIXED = f"{HEADER} (float[b, n] x) => (float[b, n] y) {{ s = ReduceSum (x) y = Add (x, s) }}"
X = np.ones((1, 2), np.float32)


class World:
    """BATCH over a device that waits for the test, and a clock that goes when it is told to."""

    def __init__(self, core: aioinfer.Core, devices: MockDevices) -> None:
        self.core, self.timer = core, VirtualTimer()
        self.device: MockDevice = devices[0]

    def load(self, text: str = RELU, rows: int = 4, **config: Any) -> aioinfer.ExecutableNetwork:
        network = self.core.load_network(parser.parse_model(text), f"BATCH:MOCK({rows})", config)
        network.clock = self.timer
        return network

    async def finish(self, *tasks: asyncio.Task[Any]) -> list[Any]:
        """Have the device end what it has until these calls are answered."""
        await settle()
        while not all(task.done() for task in tasks):
            self.device.held.release(self.device.held.waiting_count)
            await settle()
        return await asyncio.gather(*tasks, return_exceptions=True)


def call(
    network: aioinfer.ExecutableNetwork, x: np.ndarray = X, **options: Any
) -> asyncio.Task[Any]:
    return asyncio.ensure_future(network.infer(x, **options))


def batches(network: aioinfer.ExecutableNetwork) -> dict[int, int]:
    (part,) = network.statistics().parts
    return dict(part.batch_sizes)


async def a_batch_is_stuck_after_cancels(world: World) -> None:
    network = world.load()
    for _ in range(3):
        tasks = [call(network) for _ in range(9)]
        await settle()
        for task in tasks:
            task.cancel()
        ended = await world.finish(*tasks)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
    (answer,) = await world.finish(call(network))
    np.testing.assert_array_equal(answer["y"], X)


async def late_calls_slow_those_behind_them(world: World) -> None:
    network = world.load(rows=2)
    running = call(network)
    await settle()
    late = [call(network, deadline_s=0.5) for _ in range(50)]
    await settle()
    world.timer.advance(1.0)
    assert all(isinstance(end, DeadlineExceededError) for end in await ended(late))
    behind = [call(network), call(network)]
    await world.finish(running, *behind)
    assert sum(rows * count for rows, count in batches(network).items()) <= 5  # two late ones ran


async def a_late_call_is_told_when_the_run_before_it_ends(world: World) -> None:
    network = world.load(rows=1)
    running = [call(network) for _ in range(4)]
    await settle()
    late = call(network, deadline_s=0.5)
    await settle()
    world.timer.advance(1.0)
    assert isinstance((await ended([late]))[0], DeadlineExceededError)
    assert not any(task.done() for task in running), "the device has ended nothing yet"
    await world.finish(*running)


async def a_late_call_frees_a_slot_that_is_in_use(world: World) -> None:
    network = world.load(rows=1)
    late = [call(network, deadline_s=0.5) for _ in range(4)]
    await settle()
    on_device = world.device.held.waiting_count
    world.timer.advance(1.0)
    assert all(isinstance(end, DeadlineExceededError) for end in await ended(late))
    behind = [call(network) for _ in range(4)]
    await settle()
    assert world.device.held.waiting_count <= on_device, "slots are in use until the device ends"
    await world.finish(*behind)


async def models_are_mixed_in_one_batch(world: World) -> None:
    relu, negative = world.load(), world.load(NEG)
    tasks = [call(network, X * n) for n in range(8) for network in (relu, negative)]
    for number, answer in enumerate(await world.finish(*tasks)):
        sign = -1 if number % 2 else 1
        np.testing.assert_array_equal(answer["y"], sign * X * (number // 2))


async def batches_are_smaller_than_they_could_be(world: World) -> None:
    network = world.load(rows=8)
    running = call(network)
    await settle()
    tasks = [call(network) for _ in range(32)]
    await world.finish(running, *tasks)
    assert batches(network) == {1: 1, 8: 4}


async def rows_inside_a_call_are_not_counted(world: World) -> None:
    network = world.load(rows=8)
    tasks = [call(network, np.repeat(X, count, axis=0)) for count in (5, 4, 3, 6, 2, 7, 1)]
    await world.finish(*tasks)
    assert max(batches(network)) <= 8


async def a_batch_of_a_lost_device_poisons_the_next(world: World) -> None:
    network = world.load()
    tasks = [call(network) for _ in range(4)]
    await settle()
    while world.device.held.waiting_count:
        world.device.held.fail(DeviceError("lost"))
        await settle()
    assert all(isinstance(end, DeviceError) for end in await ended(tasks))
    (answer,) = await world.finish(call(network))
    np.testing.assert_array_equal(answer["y"], X)


async def without_a_bound_memory_ends(world: World) -> None:
    network = world.load(rows=1, MAX_QUEUED_REQUESTS=3)
    tasks = [call(network) for _ in range(40)]
    await settle()
    refused = [task for task in tasks if task.done()]
    assert all(isinstance(end, OverloadedError) for end in await ended(refused))
    assert len(refused) >= 30
    await world.finish(*tasks)


async def a_stream_is_not_batched_with_calls(world: World) -> None:
    network = world.load(rows=8)

    async def frames() -> AsyncIterator[np.ndarray]:
        for number in range(12):
            yield X * number

    async def read() -> list[float]:
        return [float(made["y"][0, 0]) async for made in network.stream(frames())]

    reading = asyncio.ensure_future(read())
    tasks = [call(network) for _ in range(8)]
    answers = await world.finish(reading, *tasks)
    assert answers[0] == list(range(12))
    assert max(batches(network)) > 1


async def an_abort_is_not_told_to_who_waits(world: World) -> None:
    network = world.load()
    request = network.create_infer_request()
    waiting = asyncio.ensure_future(request.infer(X))
    await settle()
    request.cancel()
    (end,) = await ended([waiting])
    assert isinstance(end, RequestCancelledError)
    world.device.held.release(world.device.held.waiting_count)


async def calls_that_nobody_waits_for_are_computed(world: World) -> None:
    network = world.load(rows=1)
    running = call(network)
    await settle()
    left = [call(network) for _ in range(20)]
    await settle()
    for task in left:
        task.cancel()
    await ended(left)
    await world.finish(running, call(network))
    assert sum(batches(network).values()) <= 4  # few were there before they were cancelled


async def one_bad_item_fails_all(world: World) -> None:
    network = world.load(LOOKUP)
    places = [np.array([[place]], np.int64) for place in (1, 2, 99, 3)]
    for _ in range(2):  # the round after an error is clean
        one, two, bad, three = await world.finish(*(call(network, place) for place in places))
        assert [answer["y"] for answer in (one, two, three)] == [10, 20, 30]
        assert isinstance(bad, TensorError)


async def a_window_costs_whoever_has_no_time_for_it(world: World) -> None:
    network = world.load(AUTO_BATCH_TIMEOUT=1000)
    hurried = call(network, deadline_s=0.5)
    await settle()
    assert world.device.held.waiting_count == 0
    world.timer.advance(0.49)
    await settle()
    assert world.device.held.waiting_count == 1, "the window is longer than the time there is"
    (answer,) = await world.finish(hurried)
    np.testing.assert_array_equal(answer["y"], X)


async def an_idle_device_waits_for_more(world: World) -> None:
    network = world.load(rows=8)
    alone = call(network)
    await settle()
    assert world.device.held.waiting_count == 1, "the clock stands still"
    await world.finish(alone)


async def a_priority_has_no_way_in(world: World) -> None:
    network = world.load(rows=1)
    ends: list[str] = []

    async def ask(name: str, priority: int) -> None:
        await network.infer(X, priority=priority)
        ends.append(name)

    running = [call(network) for _ in range(4)]
    await settle()
    tasks = [asyncio.ensure_future(ask("later", 0)) for _ in range(4)]
    await settle()
    tasks.append(asyncio.ensure_future(ask("urgent", 1)))
    await settle()
    while not all(task.done() for task in (*running, *tasks)):
        world.device.held.release()
        await settle()
    assert ends[0] == "urgent"


async def callers_change_when_batching_is_switched_on(world: World) -> None:
    plain = world.core.load_network(parser.parse_model(RELU), "MOCK")
    both = [call(network, X) for network in (plain, world.load())]
    one, other = await world.finish(*both)
    assert one.keys() == other.keys()
    np.testing.assert_array_equal(one["y"], other["y"])
    assert (one["y"].shape, one["y"].dtype) == (other["y"].shape, other["y"].dtype)


async def an_idle_request_holds_up_its_group(world: World) -> None:
    network = world.load(rows=4)
    requests = [network.create_infer_request() for _ in range(4)]
    for _ in range(2):
        for request in requests[:3]:  # the fourth one never asks
            request.start_async(X)
        while not all(request.wait(0) for request in requests[:3]):
            world.device.held.release(world.device.held.waiting_count)
            await settle()


async def it_falls_back_to_one_by_one_in_silence(world: World) -> None:
    model = parser.parse_model(MIXED)
    with pytest.raises(NotSupportedError, match="ReduceSum"):
        world.core.load_network(model, "BATCH:MOCK(4)")
    network = world.core.load_network(model, "BATCH:MOCK(4)", {"ALLOW_UNBATCHED": True})
    assert "ReduceSum" in network.get_metric("BATCHING_REFUSAL")


async def ended(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)


BUGS: dict[str, Callable[[World], Awaitable[None]]] = {
    "ray-project/ray #50046 stuck after cancels": a_batch_is_stuck_after_cancels,
    "ray-project/ray #41057 late calls slow others": late_calls_slow_those_behind_them,
    "triton server #7512 told only when the run ends": (
        a_late_call_is_told_when_the_run_before_it_ends
    ),
    "BentoML #5642 a deadline frees a slot in use": a_late_call_frees_a_slot_that_is_in_use,
    "ray-project/ray #56633 models mixed": models_are_mixed_in_one_batch,
    "ray-project/ray #43288 smaller than asked": batches_are_smaller_than_they_could_be,
    "BentoML #3859 rows are not counted": rows_inside_a_call_are_not_counted,
    "OpenVINO: errors of a group stay": a_batch_of_a_lost_device_poisons_the_next,
    "triton server #980 no bound": without_a_bound_memory_ends,
    "LitServe #45 streams": a_stream_is_not_batched_with_calls,
    "vllm #20362 an abort is not raised where it is waited for": an_abort_is_not_told_to_who_waits,
    "triton server #8030 #4818 #6920, vllm #7111 what nobody waits for is computed": (
        calls_that_nobody_waits_for_are_computed
    ),
    "LitServe #340, dali_backend #287 one bad item fails all": one_bad_item_fails_all,
    "BentoML #1530 a latency goal is missed": a_window_costs_whoever_has_no_time_for_it,
    "mosec #382 an idle device waits": an_idle_device_waits_for_more,
    "pytriton #42 no way to send a priority": a_priority_has_no_way_in,
    "LitServe #412 callers change with batching": callers_change_when_batching_is_switched_on,
    "OpenVINO: an idle request holds up its group": an_idle_request_holds_up_its_group,
    "OpenVINO: batch 1 in silence": it_falls_back_to_one_by_one_in_silence,
}


@pytest.mark.parametrize("bug", BUGS)
async def test_it_is_not_so_here(core: aioinfer.Core, mock: MockDevices, bug: str) -> None:
    await BUGS[bug](World(core, mock))
