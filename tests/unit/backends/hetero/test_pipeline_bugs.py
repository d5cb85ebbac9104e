"""What pipelines and thread pools of other systems are known to get wrong: a test for each.

The names of the cases say what is wrong there, and where that was told: repository and issue.
"""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.executors import CpuAllowance
from aioinfer.testing import MockDevices
from unit.backends.hetero.small_graphs import affinity, arrays, graph, on_one_device

WAIT_S = 20.0  # a bound for what must happen; never slept through
REFERENCES = "HETERO:REFERENCE.0,REFERENCE.1"
# p -> a@0 -> b@1
PAIR = "a@0 = Relu(p)\nb@1 = Neg(a)"


@dataclass
class World:
    """Two devices that wait for the test, and two that compute."""

    core: aioinfer.Core
    mock: MockDevices

    def load(self, plugin: str = "MOCK") -> aioinfer.ExecutableNetwork:
        return self.core.load_network(
            graph(PAIR, "b", shape=["n", 3]),
            f"HETERO:{plugin}.0,{plugin}.1",
            {"AFFINITY": affinity(PAIR, plugin)},
        )

    def waiting(self) -> list[int]:
        return [device.held.waiting_count for device in self.mock.devices][:2]


@pytest.fixture
def world(core: aioinfer.Core, mock: MockDevices) -> World:
    return World(core, mock)


def expected(inputs: dict[str, np.ndarray]) -> np.ndarray:
    return -np.maximum(inputs["p"], 0)


def each_step_comes_back_to_the_caller(world: World) -> None:
    network = world.load()

    async def ask_and_hold_the_loop() -> dict[str, Any]:
        answer = asyncio.ensure_future(network.infer(arrays()))
        await asyncio.sleep(0)
        assert world.waiting() == [1, 0]
        world.mock[0].held.release()
        assert world.waiting() == [0, 1]  # and the loop has not had a turn
        world.mock[1].held.release()
        assert not answer.done()
        return await answer

    np.testing.assert_array_equal(asyncio.run(ask_and_hold_the_loop())["b"], expected(arrays()))


def calls_of_one_loop_follow_each_other(world: World) -> None:
    given = [arrays(seed=seed) for seed in range(4)]

    async def ask_together() -> list[dict[str, Any]]:
        answers = [asyncio.ensure_future(network.infer(inputs)) for inputs in given]
        await asyncio.sleep(0)
        assert world.waiting() == [4, 0]
        world.mock[0].held.release(4)
        assert world.waiting() == [0, 4]
        world.mock[1].held.release(4)
        return await asyncio.gather(*answers)

    for device in world.mock.devices:
        device.slot_count = 4
    network = world.load()
    for inputs, outputs in zip(given, asyncio.run(ask_together()), strict=True):
        np.testing.assert_array_equal(outputs["b"], expected(inputs))


def a_pipeline_serves_no_more_than_one_call_after_the_other(world: World) -> None:
    """Each device has one run at a time, and each round both end what they have."""
    for device in world.mock.devices:
        device.slot_count = 1
    network = world.load()
    requests = [network.create_infer_request() for _ in range(8)]
    for request in requests:
        request.start_async(arrays())
    rounds = 0
    while any(world.waiting()):
        busy = [device for device in world.mock.devices if device.held.waiting_count]
        for device in reversed(busy):
            device.held.release()
        rounds += 1
    for request in requests:
        assert request.wait(0)
    assert rounds == 9  # and not 16


def what_goes_from_step_to_step_is_copied(world: World) -> None:
    given = {"p": np.ones((200_000, 3), np.float32)}
    with world.load("REFERENCE") as network:
        request = network.create_infer_request()
        request.infer_sync(given)
        tracemalloc.start()
        try:
            request.infer_sync(given)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 2.5 * given["p"].nbytes  # what each of the two steps makes


def threads_that_meet_new_shapes_disturb_each_other(world: World) -> None:
    config = {"AFFINITY": {"a": "CPU", "b": "REFERENCE"}}
    model, barrier = graph(PAIR, "b", shape=["n", 3]), threading.Barrier(8)
    with world.core.load_network(model, "HETERO:CPU,REFERENCE", config) as network:

        def ask(number: int) -> None:
            barrier.wait(WAIT_S)
            for turn in range(12):
                rows = 1 + (number + turn) % 6
                given = {"p": np.full((rows, 3), number + 1.0, np.float32)}
                found = network.create_infer_request().infer_sync(given)
                np.testing.assert_array_equal(found["b"], expected(given))

        with ThreadPoolExecutor(8) as pool:
            for asked in [pool.submit(ask, number) for number in range(8)]:
                asked.result(WAIT_S)
        assert network.statistics().plans.build_count == 12  # six for each part


def a_network_is_of_the_thread_that_loaded_it(world: World) -> None:
    found: list[aioinfer.ExecutableNetwork] = []
    loader = threading.Thread(target=lambda: found.append(world.load("REFERENCE")))
    loader.start()
    loader.join(WAIT_S)
    answers: list[dict[str, Any]] = []
    request = found[0].create_infer_request()
    for _ in range(2):
        caller = threading.Thread(target=lambda: answers.append(request.infer_sync(arrays())))
        caller.start()
        caller.join(WAIT_S)
    for answer in answers:
        np.testing.assert_array_equal(answer["b"], expected(arrays()))
    assert len(answers) == 2
    found[0].close()


def threads_are_as_many_as_the_host_has_cpus(world: World) -> None:
    from aioinfer.backends.cpu import plugin

    text = "a@0 = Relu(p)"
    with pytest.MonkeyPatch.context() as patch:
        quota = CpuAllowance(tuple(range(64)), 2.0)
        patch.setattr(plugin, "allowed_cpus", lambda: quota)
        config = {"PERFORMANCE_HINT": "THROUGHPUT"}
        with world.core.load_network(graph(text, "a"), "CPU", config) as network:
            assert network.get_config("NUM_STREAMS") == 2


def a_shared_constant_makes_parts_feed_each_other(world: World) -> None:
    text = "a@0 = Add(p, k1)\nb@1 = Mul(a, k1)\nc@0 = Add(b, k1)\nd@1 = Sub(c, k1)"
    proto, given = graph(text, "d"), arrays()
    with world.core.load_network(
        proto, REFERENCES, {"AFFINITY": affinity(text, "REFERENCE")}
    ) as network:
        assert network.get_metric("NUMBER_OF_SUBGRAPHS") == 4
        found = network.create_infer_request().infer_sync(given)
    np.testing.assert_array_equal(found["d"], on_one_device(world.core, proto, given)["d"])


BUGS: dict[str, Callable[[World], None]] = {
    "triton server #7622 each step comes back to the caller": each_step_comes_back_to_the_caller,
    "triton server #4137 #7888 calls are not concurrent": calls_of_one_loop_follow_each_other,
    "triton server #8740 no better than two calls": (
        a_pipeline_serves_no_more_than_one_call_after_the_other
    ),
    "triton server #4809 copies between steps": what_goes_from_step_to_step_is_copied,
    "pytorch #118260 not for threads": threads_that_meet_new_shapes_disturb_each_other,
    "pytorch #123177 of one thread": a_network_is_of_the_thread_that_loaded_it,
    "modal-client #4120 threads for the host": threads_are_as_many_as_the_host_has_cpus,
    "openvino #35750 a shared constant": a_shared_constant_makes_parts_feed_each_other,
}


@pytest.mark.parametrize("bug", BUGS)
def test_it_is_not_so_here(world: World, bug: str) -> None:
    BUGS[bug](world)
