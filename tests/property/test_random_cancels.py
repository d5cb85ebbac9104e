"""Hundreds of tasks and threads, cancelled at random: nothing hangs, and the numbers add up."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

import numpy as np
import pytest
import trio
import trio.testing

import aioinfer
from aioinfer.errors import DeadlineExceededError, RequestCancelledError
from aioinfer.executors import NOW, Lane, Ready
from unit.runtime.models import expected, tiny_model

TASK_COUNT = 400
WAIT_S = 20.0
DEVICES = ["REFERENCE", "HETERO:REFERENCE.0,REFERENCE.1"]
AFFINITY = {"AFFINITY": {"relu": "REFERENCE.0", "add": "REFERENCE.1"}}


@pytest.fixture(params=DEVICES)
def network(core: aioinfer.Core, request: pytest.FixtureRequest) -> aioinfer.ExecutableNetwork:
    config = AFFINITY if request.param.startswith("HETERO") else {}
    return core.load_network(tiny_model(), request.param, config)


def x_of(number: int) -> np.ndarray:
    return np.full((1 + number % 3, 3), number - TASK_COUNT // 2, np.float32)


class Clients:
    """What the tasks have seen, by outcome."""

    def __init__(self, network: aioinfer.ExecutableNetwork, seed: int) -> None:
        self.network, self.chance = network, random.Random(seed)
        self.gate = threading.Event()
        first = getattr(network, "networks", [network])[0]
        first._streams.run(self._hold, NOW, lambda _ready, _error: None)
        self.started_count = 0
        self.seen: Counter[str] = Counter()

    def _hold(self, _lane: Lane) -> Ready:
        """Hold the device's stream, so that the first cancels meet runs under way."""
        assert self.gate.wait(WAIT_S)
        return NOW

    def deadline_s(self) -> float | None:
        return self.chance.choice([None, None, None, 3600.0, 0.002, 0.0])

    async def infer(self, number: int) -> None:
        deadline_s, priority = self.deadline_s(), self.chance.randrange(3)
        self.started_count += 1
        x = x_of(number)
        try:
            outputs = await self.network.infer(x, deadline_s=deadline_s, priority=priority)
        except DeadlineExceededError:
            self.seen["expired"] += 1
            return
        np.testing.assert_array_equal(outputs["y"], expected(x))
        self.seen["finished"] += 1

    def check(self) -> None:
        """Close, and compare what was seen with what was counted."""
        self.network.close()
        statistics = self.network.statistics()
        counted = (
            statistics.finished_request_count
            + statistics.cancelled_request_count
            + statistics.expired_request_count
        )
        assert counted == self.started_count
        assert statistics.cancelled_request_count > 0
        assert statistics.failed_request_count == statistics.aborted_request_count == 0
        # A task that is cancelled while its answer is on the way has seen neither.
        assert statistics.finished_request_count >= self.seen["finished"] > 0
        assert statistics.expired_request_count >= self.seen["expired"] > 0
        assert (statistics.waiting_run_count, statistics.running_run_count) == (0, 0)
        assert len(self.network.admission._idle) == self.network.admission.slot_count


@pytest.mark.parametrize("seed", range(3))
async def test_asyncio_tasks(network: aioinfer.ExecutableNetwork, seed: int) -> None:
    clients = Clients(network, seed)
    tasks = [asyncio.create_task(clients.infer(number)) for number in range(TASK_COUNT)]
    await asyncio.sleep(0)
    for task in clients.chance.sample(tasks, k=50):
        task.cancel()
    await asyncio.sleep(0)  # a task learns of its cancellation when the loop turns
    clients.gate.set()
    for _ in range(100):
        clients.chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
    clients.check()


@pytest.mark.parametrize("seed", range(2))
def test_trio_tasks(network: aioinfer.ExecutableNetwork, seed: int) -> None:
    clients = Clients(network, seed)

    async def cancellable(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await clients.infer(number)

    scopes = [trio.CancelScope() for _ in range(TASK_COUNT)]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(cancellable, number, scope)
            await trio.testing.wait_all_tasks_blocked()
            for scope in clients.chance.sample(scopes, k=50):
                scope.cancel()
            clients.gate.set()
            for _ in range(100):
                clients.chance.choice(scopes).cancel()
                await trio.lowlevel.checkpoint()

    trio.run(main)
    clients.check()


@pytest.mark.parametrize("seed", range(2))
def test_threads_that_start_cancel_and_wait(network: aioinfer.ExecutableNetwork, seed: int) -> None:
    seen: Counter[str] = Counter()
    told: Counter[int] = Counter()
    lock, failed = threading.Lock(), []
    run_count, thread_count = 60, 4

    def callback(request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        with lock:
            told[request.id] += 1

    def use(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        request = network.create_infer_request()
        request.set_callback(callback)
        for run in range(run_count):
            x = x_of(run)
            request.start_async(x, deadline_s=chance.choice([None, 0.001, 3600.0]))
            if chance.random() < 0.5:
                request.cancel()
            try:
                assert request.wait()
            except (RequestCancelledError, DeadlineExceededError) as error:
                outcome = type(error).__name__
            else:
                np.testing.assert_array_equal(request.results["y"], expected(x))
                outcome = "finished"
            with lock:
                seen[outcome] += 1
        assert told[request.id] == run_count

    def guarded(number: int) -> None:
        try:
            use(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    statistics = network.statistics()
    assert statistics.finished_request_count == seen["finished"]
    assert statistics.cancelled_request_count == seen["RequestCancelledError"]
    assert statistics.expired_request_count == seen["DeadlineExceededError"]
    assert sum(seen.values()) == run_count * thread_count
