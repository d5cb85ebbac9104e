"""Items whose callbacks start the next ones, raise, cancel and close, as chance draws."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
import trio

import aioinfer
from aioinfer import AsyncInferQueue
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from aioinfer.executors import StreamsConfig
from unit.runtime.models import expected, tiny_model

X = np.array([[1, -2, 3]], np.float32)
BAD = np.zeros((1, 7), np.float32)
KNOWN = (ClosedError, DeadlineExceededError, RequestCancelledError)


class PlantedError(Exception):
    """What a callback raises."""


class Chaos:
    """A queue, its callback, and what was started and told, by item."""

    def __init__(self, network: aioinfer.ExecutableNetwork, seed: int, jobs: int) -> None:
        self.network, self.chance = network, random.Random(seed)
        self.queue = AsyncInferQueue(network, jobs)
        self.lock = threading.Lock()
        self.started: Counter[int] = Counter()
        self.told: Counter[int] = Counter()
        self.numbers = iter(range(10**9))
        self.planted_count = self.kept_count = 0
        self.closes_at = -1

    def draw(self) -> float:
        with self.lock:
            return self.chance.random()

    def item(self) -> tuple[int, float | None]:
        draw = self.draw()
        with self.lock:
            return next(self.numbers), 0.0 if draw < 0.1 else 0.0005 if draw < 0.2 else None

    def start(self) -> None:
        number, deadline_s = self.item()
        with self.lock:
            self.started[number] += 1
        try:
            self.queue.start_async(X * (number % 100), number, deadline_s=deadline_s)
        except BaseException:
            with self.lock:
                del self.started[number]
            raise

    def look(self, request: aioinfer.InferRequest, number: int) -> None:
        with self.lock:
            self.told[number] += 1
        assert request.userdata == number
        try:
            np.testing.assert_array_equal(request.results["y"], expected(X * (number % 100)))
        except KNOWN:
            pass
        draw = self.draw()
        if number == self.closes_at:
            self.network.abort()
        if draw < 0.1:
            with self.lock:
                self.planted_count += 1
            raise PlantedError
        if draw < 0.2:
            request.cancel()
        if draw < 0.3:
            with pytest.raises((TensorError, ClosedError)):
                self.queue.start_async(BAD)
        if draw < 0.5:
            try:
                self.start()
            except (ClosedError, RequestStateError, DeadlineExceededError):
                return
            if draw < 0.35:
                self.queue[self.chance.randrange(len(self.queue))].cancel()

    def settle(self) -> None:
        """Wait for all, and check that each item was told once and no error is unaccounted for."""
        try:
            self.queue.wait_all()
        except ExceptionGroup as group:
            self.kept_count += len(group.exceptions)
            _planted, others = group.split(PlantedError)
            if others is not None:
                raise others from None
        assert self.told == self.started
        assert len(self.queue._idle) == len(self.queue)
        assert all("idle" in repr(request) for request in self.queue)
        assert self.kept_count == self.planted_count


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("thread_count", [1, 4])
def test_a_thousand_rounds_of_chaos_tell_each_item_once(
    core: aioinfer.Core, thread_count: int
) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    if thread_count > 1:  # callbacks overlap, and one may end before the one that started it
        network._callback_executor = core.executors.acquire(StreamsConfig("many", thread_count))
    chaos = Chaos(network, 16, 3)
    chaos.queue.set_callback(chaos.look)
    feeders = [threading.Thread(target=lambda: [feed(chaos) for _ in range(500)]) for _ in range(2)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.join()
    chaos.settle()
    assert sum(chaos.told.values()) > 800
    statistics = network.statistics()
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    assert network.admission.runs == set()


def feed(chaos: Chaos) -> None:
    try:
        chaos.start()
    except DeadlineExceededError:
        pass


@pytest.mark.usefixtures("no_collector")
def test_callbacks_that_close_the_network_end_every_item(core: aioinfer.Core) -> None:
    for seed in range(30):
        network = core.load_network(tiny_model(), "REFERENCE")
        chaos = Chaos(network, seed, 1 + seed % 4)
        chaos.closes_at = seed
        chaos.queue.set_callback(chaos.look)
        for _ in range(60):
            try:
                feed(chaos)
            except ClosedError:
                break
        chaos.settle()
        assert network.close(timeout_s=20.0)


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_coroutines_of_chaos_tell_each_item_once(core: aioinfer.Core, library: str) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    chaos = Chaos(network, 7, 2)

    async def look(request: aioinfer.InferRequest, number: int) -> None:
        with chaos.lock:
            chaos.told[number] += 1
        draw = chaos.draw()
        try:
            np.testing.assert_array_equal(request.results["y"], expected(X * (number % 100)))
        except KNOWN:
            pass
        if draw < 0.1:
            chaos.planted_count += 1
            raise PlantedError
        if draw < 0.4:
            await start()
            request.cancel() if draw < 0.2 else None

    async def start() -> None:
        number, deadline_s = chaos.item()
        chaos.started[number] += 1
        try:
            await chaos.queue.start(X * (number % 100), number, deadline_s=deadline_s)
        except DeadlineExceededError:
            del chaos.started[number]

    async def main() -> None:
        is_trio = library == "trio"
        here: Any = trio.lowlevel.current_trio_token() if is_trio else asyncio.get_running_loop()
        chaos.queue.set_callback(look, here)
        for _ in range(400):
            await start()
        try:
            await chaos.queue.wait_all_async()
        except ExceptionGroup as group:
            chaos.kept_count += len(group.exceptions)

    trio.run(main) if library == "trio" else asyncio.run(main())
    chaos.settle()
    assert sum(chaos.told.values()) > 300
