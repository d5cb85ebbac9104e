"""Who uses the networks of the stress test: tasks of an event loop, and three kinds of threads.

Each client starts runs until the plant has no more of them, and notes for each one what it was
told. ``unknown`` is the outcome of a task that was cancelled itself: it is told nothing of its run.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections import Counter
from typing import Any

import numpy as np

import aioinfer
from aioinfer.errors import DeadlineExceededError, RequestCancelledError
from stress.plant import PLANTED, Plant, Target

TASKS = 24
IN_FLIGHT = 12
WAIT_S = 30.0
DEADLINES_S = (None, None, None, None, 3600.0, 0.02, 0.002, 0.0)
INPUTS = [np.full((1 + number % 3, 3), number - 4, np.float32) for number in range(9)]


class CallbackError(Exception):
    """Planted: a callback has raised."""


def outcome_of(error: BaseException | None) -> str:
    """Name the outcome as the statistics do; raises what nobody has planted."""
    if error is None:
        return "finished"
    if isinstance(error, RequestCancelledError):
        return "cancelled"
    if isinstance(error, DeadlineExceededError):
        return "expired"
    if isinstance(error, PLANTED):
        return "failed"
    raise error


class Client:
    """One user; ``seen`` counts (index of the network, outcome)."""

    def __init__(self, plant: Plant, number: int) -> None:
        self.plant, self.number = plant, number
        self.chance = random.Random(plant.seed * 1000 + number)
        self.started: Counter[int] = Counter()
        self.seen: Counter[tuple[int, str]] = Counter()

    def run(self) -> None:
        """Use the networks until no runs are left; called on a thread of its own."""
        raise AssertionError("each kind of client runs in its own way")

    def draw(self) -> tuple[int, Target, np.ndarray, dict[str, Any]]:
        """Draw a network, an input for it, and a deadline and a priority."""
        index = self.chance.randrange(len(self.plant.targets))
        limits = {
            "deadline_s": self.chance.choice(DEADLINES_S),
            "priority": self.chance.randrange(-1, 3),
        }
        return index, self.plant.targets[index], self.chance.choice(INPUTS), limits

    def note(self, index: int, error: BaseException | None) -> None:
        self.seen[index, outcome_of(error)] += 1

    def own_requests(self) -> list[aioinfer.InferRequest]:
        """Make a request of each network."""
        return [target.network.create_infer_request() for target in self.plant.targets]


def check(target: Target, x: np.ndarray, outputs: dict[str, Any]) -> None:
    assert np.array_equal(outputs["y"], target.expected(x)), (target.network, x, outputs)


def wait_twice(request: aioinfer.InferRequest) -> BaseException | None:
    """Wait for a run's end and give its error; asked again, it says the same."""
    told = [_wait(request), _wait(request)]
    assert told[0] is told[1], f"{request!r} has settled twice: {told}"
    return told[0]


def _wait(request: aioinfer.InferRequest) -> BaseException | None:
    try:
        assert request.wait(WAIT_S), f"{request!r} has not ended"
    except (aioinfer.errors.AioInferError, *PLANTED, CallbackError) as error:
        return error
    return None


class LoopClient(Client):
    """Many tasks on one event loop."""

    def __init__(self, plant: Plant, number: int, make_loop: Any) -> None:
        super().__init__(plant, number)
        self._make_loop = make_loop
        self.left_tasks: list[str] = []

    def run(self) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        await asyncio.gather(*(self._work() for _ in range(TASKS)))
        mine = asyncio.current_task()
        self.left_tasks = [repr(task) for task in asyncio.all_tasks() if task is not mine]

    async def _work(self) -> None:
        requests = self.own_requests()
        ways = (self._pool, self._pool, self._cancelled_task, self._own, self._started)
        while self.plant.take():
            index, target, x, limits = self.draw()
            self.plant.cancel_another(self.chance)
            self.started[index] += 1
            await self.chance.choice(ways)(index, target, x, limits, requests[index])

    async def _pool(
        self, index: int, target: Target, x: np.ndarray, limits: dict[str, Any], _request: Any
    ) -> None:
        try:
            check(target, x, await target.network.infer(x, **limits))
        except (aioinfer.errors.AioInferError, *PLANTED) as error:
            self.note(index, error)
        else:
            self.note(index, None)

    async def _cancelled_task(
        self, index: int, target: Target, x: np.ndarray, limits: dict[str, Any], request: Any
    ) -> None:
        try:
            async with asyncio.timeout(self.chance.random() * 0.01):
                await self._pool(index, target, x, limits, request)
        except TimeoutError:
            self.seen[index, "unknown"] += 1

    async def _own(
        self,
        index: int,
        target: Target,
        x: np.ndarray,
        limits: dict[str, Any],
        request: aioinfer.InferRequest,
    ) -> None:
        await _idle(request)
        self.plant.show(request)
        try:
            check(target, x, await request.infer(x, **limits))
        except (aioinfer.errors.AioInferError, *PLANTED) as error:
            self.note(index, error)
        else:
            self.note(index, None)

    async def _started(
        self,
        index: int,
        target: Target,
        x: np.ndarray,
        limits: dict[str, Any],
        request: aioinfer.InferRequest,
    ) -> None:
        await _idle(request)
        request.start_async(x, **limits)
        self.plant.show(request)
        if self.chance.random() < 0.3:
            await asyncio.sleep(0)
            request.cancel()
        error = await _idle(request)
        if error is None:
            check(target, x, request.results)
        self.note(index, error)


async def _idle(request: aioinfer.InferRequest) -> BaseException | None:
    try:
        await request.wait_async()
    except (aioinfer.errors.AioInferError, *PLANTED) as error:
        return error
    return None


class SyncClient(Client):
    """A thread that calls infer_sync."""

    def run(self) -> None:
        requests = self.own_requests()
        while self.plant.take():
            index, target, x, _limits = self.draw()
            request = requests[index]
            self.plant.cancel_another(self.chance)
            self.plant.show(request)
            self.started[index] += 1
            told: BaseException | None = None
            try:
                check(target, x, request.infer_sync(x))
            except (aioinfer.errors.AioInferError, *PLANTED) as error:
                told = error
            assert wait_twice(request) is told  # and idle, where it was only answered
            self.note(index, told)


class WaitingClient(Client):
    """A thread that starts several runs, cancels some, and waits for all in another order."""

    def run(self) -> None:
        requests = [request for _ in range(4) for request in self.own_requests()]
        is_over = False
        while not is_over:
            flights = []
            for number in self.chance.sample(range(len(requests)), k=IN_FLIGHT):
                if not self.plant.take():
                    is_over = True
                    break
                index, request = number % len(self.plant.targets), requests[number]
                _, _, x, limits = self.draw()
                request.start_async(x, userdata=x, **limits)
                self.started[index] += 1
                self.plant.show(request)
                flights.append((index, request))
            for index, request in self.chance.sample(flights, k=len(flights)):
                self.plant.cancel_another(self.chance)
                if self.chance.random() < 0.3:
                    request.cancel()
                error = wait_twice(request)
                if error is None:
                    check(self.plant.targets[index], request.userdata, request.results)
                self.note(index, error)


class CallbackClient(Client):
    """A thread whose callbacks start the next run, or raise, or hand the request back to it."""

    def __init__(self, plant: Plant, number: int) -> None:
        super().__init__(plant, number)
        self._ended: queue.SimpleQueue[tuple[int, aioinfer.InferRequest, bool]] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()  # each network calls back on a thread of its own
        self.told: Counter[int] = Counter()
        """Calls by the number of their run."""
        self.run_count = 0
        self.strange: list[BaseException] = []

    def run(self) -> None:
        open_count = 0
        for index, request in enumerate(self.own_requests() + self.own_requests()):
            index %= len(self.plant.targets)
            request.set_callback(self._callback)
            open_count += self._start(index, request)
        while open_count:
            index, request, will_raise = self._ended.get(timeout=WAIT_S)
            error = wait_twice(request)
            assert isinstance(error, CallbackError) == will_raise, error
            self.plant.cancel_another(self.chance)
            open_count -= not self._start(index, request)

    def _start(self, index: int, request: aioinfer.InferRequest) -> bool:
        if not self.plant.take():
            return False
        _, _, x, limits = self.draw()
        with self._lock:
            number, self.run_count = self.run_count, self.run_count + 1
            self.started[index] += 1
        request.start_async(x, userdata=(number, index, x), **limits)
        self.plant.show(request)
        return True

    def _callback(self, request: aioinfer.InferRequest, error: BaseException | None) -> None:
        number, index, x = request.userdata
        try:
            with self._lock:
                self.told[number] += 1
                self.note(index, error)
            if error is None:
                check(self.plant.targets[index], x, request.results)
        except BaseException as strange:
            self.strange.append(strange)
        draw = self.chance.random()
        if draw < 0.3 and self._start(index, request):
            return
        will_raise = draw > 0.9
        self._ended.put((index, request, will_raise))
        if will_raise:
            raise CallbackError("planted in a callback")
