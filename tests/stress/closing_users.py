"""Users of a network until it is closed: each gets ClosedError, and none hangs."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import numpy as np

import aioinfer
from aioinfer.errors import ClosedError
from stress.client import DEADLINES_S, ERRORS, INPUTS, WAIT_S, check, idle, outcome_of
from stress.networks import SMALL_SHAPE, Target
from stress.plant import Plant
from stress.stream_plan import Item, item_of

MOST_RUNS = 30  # of one user
IN_FLIGHT = 4
SMALL_INPUTS = [np.full(SMALL_SHAPE, number, np.float32) for number in (-1, 2)]


class Told:
    """Counts the answers of all users, and says when there are enough; for one event loop."""

    def __init__(self, plant: Plant, after: int) -> None:
        self.plant = plant
        self.is_time = asyncio.Event()
        self._loop, self._after = asyncio.get_running_loop(), after
        self._answers = itertools.count(1)
        if after == 0:
            self.is_time.set()

    def count(self) -> None:
        """Count one; from any thread."""
        self.plant.settle()
        if next(self._answers) == self._after:
            self._loop.call_soon_threadsafe(self.is_time.set)


class User:
    """Starts runs until the network is closed, or it has had enough; ``seen`` counts outcomes."""

    def __init__(self, target: Target, told: Told, chance: random.Random, is_small: bool) -> None:
        self.target, self.network, self.chance = target, target.network, chance
        self.seen: Counter[str] = Counter()
        self._told, self._inputs = told, SMALL_INPUTS if is_small else INPUTS
        self._runs_left = MOST_RUNS

    async def work(self) -> None:
        """Use the network on the loop, or on a thread of its own."""
        raise AssertionError("each kind of user works in its own way")

    def take(self) -> bool:
        """Take a run; False if there are no more for this user."""
        if not self._runs_left or not self._told.plant.take():
            return False
        self._runs_left -= 1
        return True

    def draw(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw an input, a deadline and a priority."""
        x = self.chance.choice(self._inputs)
        limits = {
            "deadline_s": self.chance.choice(DEADLINES_S),
            "priority": self.chance.randrange(-1, 3),
        }
        return x, limits

    def note(self, error: BaseException | None) -> bool:
        """Note what became of a run; True if it came too late, or was aborted."""
        self.note_outcome(outcome_of(error))
        return isinstance(error, ClosedError)

    def note_outcome(self, outcome: str) -> None:
        self.seen[outcome] += 1
        self._told.count()


class PoolUser(User):
    """Awaits ``network.infer``."""

    async def work(self) -> None:
        await self._await_all(self.network.infer)

    async def _await_all(self, infer: Callable[..., Awaitable[dict[str, Any]]]) -> None:
        while self.take():
            x, limits = self.draw()
            told: BaseException | None = None
            try:
                check(self.target, x, await infer(x, **limits))
            except ERRORS as error:
                told = error
            if self.note(told):
                return


class RequestUser(PoolUser):
    """Awaits a request of its own, or starts it and waits."""

    async def work(self) -> None:
        try:
            request = self.network.create_infer_request()
        except ClosedError:
            return
        self._request = request
        await self._await_all(self._start_and_wait if self.chance.random() < 0.5 else self._infer)

    async def _infer(self, x: np.ndarray, **limits: Any) -> dict[str, Any]:
        await idle(self._request)  # infer would do so, and its deadline could pass meanwhile
        return await self._request.infer(x, **limits)

    async def _start_and_wait(self, x: np.ndarray, **limits: Any) -> dict[str, Any]:
        request = self._request
        await idle(request)
        request.start_async(x, **limits)
        await request.wait_async()
        return request.results


class StreamUser(User):
    """Reads streams."""

    async def work(self) -> None:
        while self._runs_left:
            count = self.chance.randrange(1, 12)
            drawn = [self.chance.choice(self._inputs) for _ in range(count)]
            items = [Item(x, "") for x in drawn if self.take()]
            if not items:
                return
            told: set[int] = set()
            error = await self._read(items, told)
            for number, item in enumerate(items):
                if number not in told:
                    self.note_outcome("unknown" if item.tries else "unstarted")
            if isinstance(error, ClosedError):
                return

    async def _read(self, items: list[Item], told: set[int]) -> BaseException | None:
        try:
            async with aclosing(self.network.stream(items, ordered=False)) as stream:
                async for index, outputs in stream:
                    check(self.target, items[index].x, outputs)
                    told.add(index)
                    self.note(None)
        except ERRORS as error:
            number = item_of(error)
            if number is not None:
                told.add(number)
                self.note(error)
            return error
        assert len(told) == len(items), "items are lost"
        return None


class SyncUser(User):
    """A thread that calls ``infer_sync``."""

    async def work(self) -> None:
        await asyncio.to_thread(self._call)

    def _call(self) -> None:
        try:
            request = self.network.create_infer_request()
        except ClosedError:
            return
        while self.take():
            x, limits = self.draw()
            told: BaseException | None = None
            try:
                check(self.target, x, request.infer_sync(x, **limits))
            except ERRORS as error:
                told = error
            if self.note(told):
                return
            self._wait(request)

    def _wait(self, request: aioinfer.InferRequest) -> BaseException | None:
        try:
            assert request.wait(WAIT_S), f"{request!r} has not ended"
        except ERRORS as error:
            return error
        return None


class WaitingUser(SyncUser):
    """A thread that starts several runs and waits for all."""

    def _call(self) -> None:
        try:
            requests = [self.network.create_infer_request() for _ in range(IN_FLIGHT)]
        except ClosedError:
            return
        is_closed = False
        while not is_closed:
            flights = []
            for request in requests:
                if not self.take():
                    is_closed = True
                    break
                x, limits = self.draw()
                try:
                    request.start_async(x, **limits)
                except ClosedError as error:
                    is_closed = self.note(error)
                    break
                flights.append((request, x))
            for request, x in flights:
                error = self._wait(request)
                if error is None:
                    check(self.target, x, request.results)
                is_closed |= self.note(error)


class CallbackUser(User):
    """A request whose callback starts the next run."""

    async def work(self) -> None:
        try:
            request = self.network.create_infer_request()
        except ClosedError:
            return
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        request.set_callback(self._callback)
        self._start(request)
        await self._over

    def _start(self, request: aioinfer.InferRequest) -> None:
        if not self.take():
            self._end(None)
            return
        x, limits = self.draw()
        try:
            request.start_async(x, userdata=x, **limits)
        except ClosedError as error:
            self.note(error)
            self._end(None)

    def _callback(self, request: aioinfer.InferRequest, error: BaseException | None) -> None:
        try:
            if error is None:
                check(self.target, request.userdata, request.results)
            if self.note(error):
                self._end(None)
            else:
                self._start(request)
        except BaseException as strange:
            self._end(strange)

    def _end(self, strange: BaseException | None) -> None:
        def end() -> None:
            if strange is None:
                self._over.set_result(None)
            else:
                self._over.set_exception(strange)

        self._loop.call_soon_threadsafe(end)


USES = (PoolUser, RequestUser, StreamUser, SyncUser, WaitingUser, CallbackUser)
