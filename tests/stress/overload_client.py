"""A client that asks a network for more than its queue takes, and is refused at once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aioinfer
from aioinfer.errors import OverloadedError
from stress.client import ERRORS, idle, is_same
from stress.clients import LoopClient
from stress.plant import Plant

MOST_AT_ONCE = 5


class OverloadClient(LoopClient):
    """Tasks on one event loop, each with bursts of runs; no other client uses the network.

    A task that is refused tries again when any run is over: a full network has some under way.
    """

    task_count = 12

    def __init__(self, plant: Plant, number: int, make_loop: Any) -> None:
        super().__init__(plant, number, make_loop)
        self._room = asyncio.Event()

    async def _work(self, chance: random.Random) -> None:
        network = self.plant.targets[self.plant.full].network
        requests = [network.create_infer_request() for _ in range(MOST_AT_ONCE)]
        while self.plant.goes_on:
            way = chance.choice((self._await_one, self._await_own, self._start_some))
            self.plant.cancel_another(chance)
            if not await way(requests, chance):
                self._room.clear()
                await self._room.wait()

    def note(self, index: int, error: BaseException | None) -> None:
        super().note(index, error)
        if not isinstance(error, OverloadedError):
            self._room.set()

    async def _await_one(
        self, _requests: list[aioinfer.InferRequest], chance: random.Random
    ) -> bool:
        """Have the network infer; False if it has refused that."""
        return await self._await(self.plant.targets[self.plant.full].network, chance)

    async def _await_own(
        self, requests: list[aioinfer.InferRequest], chance: random.Random
    ) -> bool:
        """Have a request infer; False if it was refused."""
        await idle(requests[0])  # infer would wait for that, and its deadline could pass meanwhile
        self.plant.show(requests[0])
        return await self._await(requests[0], chance)

    async def _await(
        self, runner: aioinfer.ExecutableNetwork | aioinfer.InferRequest, chance: random.Random
    ) -> bool:
        case = self.draw_for(self.plant.full, chance)
        if not self.plant.take():
            return True
        self.started[case.index] += 1
        told: BaseException | None = None
        try:
            case.check(await runner.infer(case.x, **case.limits))
        except ERRORS as error:
            told = error
        self.note(case.index, told)
        return not isinstance(told, OverloadedError)

    async def _start_some(
        self, requests: list[aioinfer.InferRequest], chance: random.Random
    ) -> bool:
        """Start several runs at once, and wait for those that are let in; False if none is."""
        flights, was_refused = [], False
        for request in requests[: chance.randrange(1, MOST_AT_ONCE)]:
            await idle(request)
            case = self.draw_for(self.plant.full, chance)
            if not self.plant.take():
                break
            self.started[case.index] += 1
            before, ended = request.userdata, await idle(request)
            try:
                request.start_async(case.x, userdata=case, **case.limits)
            except OverloadedError as error:
                self.note(case.index, error)
                assert request.userdata is before, "it changes nothing"
                assert is_same(await idle(request), ended), "nor how its last run has ended"
                was_refused = True
                break
            self.plant.show(request)
            flights.append((case, request))
        for case, request in flights:
            error = await idle(request)
            if error is None:
                case.check(request.results)
            self.note(case.index, error)
        return bool(flights) or not was_refused
