"""Who uses the networks of the stress test: tasks of an event loop, and three kinds of threads.

Each client starts runs until the plant has no more of them, and notes for each one what it was
told. More of them, which use streams and full, closing and small networks, have files of their own.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections import Counter
from typing import Any

import aioinfer
from stress.client import ERRORS, WAIT_S, Case, Client, check, idle, is_same
from stress.plant import Plant

IN_FLIGHT = 12


class CallbackError(Exception):
    """Planted: a callback has raised."""


def wait_twice(request: aioinfer.InferRequest) -> BaseException | None:
    """Wait for a run's end and give its error; asked again, it says the same in another object."""
    told = [_wait(request), _wait(request)]
    assert is_same(*told), f"{request!r} has settled twice: {told}"
    return told[0]


def _wait(request: aioinfer.InferRequest) -> BaseException | None:
    try:
        assert request.wait(WAIT_S), f"{request!r} has not ended"
    except (*ERRORS, CallbackError) as error:
        return error
    return None


class LoopClient(Client):
    """Many tasks on one event loop."""

    task_count = 24

    def __init__(self, plant: Plant, number: int, make_loop: Any) -> None:
        super().__init__(plant, number)
        self._make_loop = make_loop

    def run(self) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        await asyncio.gather(*(self._work(self.chance_of(task)) for task in range(self.task_count)))
        mine = asyncio.current_task()
        self.left_tasks = [repr(task) for task in asyncio.all_tasks() if task is not mine]

    async def _work(self, chance: random.Random) -> None:
        requests = self.own_requests()
        ways = (self._pool, self._pool, self._cancelled_task, self._own, self._started)
        while self.plant.take():
            case, way = self.draw(chance), chance.choice(ways)
            self.plant.cancel_another(chance)
            self.started[case.index] += 1
            await way(case, requests[case.index], chance)

    async def _pool(self, case: Case, _request: Any, _chance: Any) -> None:
        try:
            case.check(await case.target.network.infer(case.x, **case.limits))
        except ERRORS as error:
            self.note(case.index, error)
        else:
            self.note(case.index, None)

    async def _cancelled_task(self, case: Case, request: Any, chance: random.Random) -> None:
        try:
            async with asyncio.timeout(chance.random() * 0.01):
                await self._pool(case, request, chance)
        except TimeoutError:
            self.note_outcome(case.index, "unknown")

    async def _own(self, case: Case, request: aioinfer.InferRequest, _chance: Any) -> None:
        await idle(request)
        self.plant.show(request)
        try:
            case.check(await request.infer(case.x, **case.limits))
        except ERRORS as error:
            self.note(case.index, error)
        else:
            self.note(case.index, None)

    async def _started(
        self, case: Case, request: aioinfer.InferRequest, chance: random.Random
    ) -> None:
        will_cancel = chance.random() < 0.3
        await idle(request)
        request.start_async(case.x, **case.limits)
        self.plant.show(request)
        if will_cancel:
            await asyncio.sleep(0)
            request.cancel()
        error = await idle(request)
        if error is None:
            case.check(request.results)
        self.note(case.index, error)


class SyncClient(Client):
    """A thread that calls infer_sync."""

    def run(self) -> None:
        requests = self.own_requests()
        while self.plant.take():
            case = self.draw(self.chance)
            request = requests[case.index]
            self.plant.cancel_another(self.chance)
            self.plant.show(request)
            self.started[case.index] += 1
            told: BaseException | None = None
            try:
                case.check(request.infer_sync(case.x))
            except ERRORS as error:
                told = error
            assert is_same(wait_twice(request), told)  # and idle, where it was only answered
            self.note(case.index, told)


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
                request = requests[number]
                case = self.draw_for(number % self.plant.common_count, self.chance)
                request.start_async(case.x, userdata=case.x, **case.limits)
                self.started[case.index] += 1
                self.plant.show(request)
                flights.append((case, request))
            for case, request in self.chance.sample(flights, k=len(flights)):
                self.plant.cancel_another(self.chance)
                if self.chance.random() < 0.3:
                    request.cancel()
                error = wait_twice(request)
                if error is None:
                    check(case.target, request.userdata, request.results)
                self.note(case.index, error)


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
        for number, request in enumerate(self.own_requests() + self.own_requests()):
            index = number % self.plant.common_count
            request.set_callback(self._callback)
            open_count += self._start(index, request)
        while open_count:
            index, request, will_raise = self._ended.get(timeout=WAIT_S)
            error = wait_twice(request)
            assert isinstance(error, CallbackError) == will_raise, error
            self.plant.cancel_another(self.chance)
            open_count -= not self._start(index, request)

    def check_end(self) -> None:
        super().check_end()
        assert self.strange == []
        assert self.told == dict.fromkeys(range(self.run_count), 1)

    def _start(self, index: int, request: aioinfer.InferRequest) -> bool:
        if not self.plant.take():
            return False
        with self._lock:
            number, self.run_count = self.run_count, self.run_count + 1
            self.started[index] += 1
        case = self.draw_for(index, self.chance_of(number))
        request.start_async(case.x, userdata=(number, case), **case.limits)
        self.plant.show(request)
        return True

    def _callback(self, request: aioinfer.InferRequest, error: BaseException | None) -> None:
        number, case = request.userdata
        try:
            with self._lock:
                self.told[number] += 1
                self.note(case.index, error)
            if error is None:
                case.check(request.results)
        except BaseException as strange:
            self.strange.append(strange)
        draw = self.chance_of(f"callback {number}").random()
        if draw < 0.3 and self._start(case.index, request):
            return
        will_raise = draw > 0.9
        self._ended.put((case.index, request, will_raise))
        if will_raise:
            raise CallbackError("planted in a callback")
