"""Who uses a network so small that a run is over where it is asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import DeadlineExceededError, TensorError
from stress.client import Client, check, idle
from stress.networks import SMALL_SHAPE
from stress.plant import Plant

TASKS = 4
INPUTS = [np.full(SMALL_SHAPE, number - 4, np.float32) for number in range(9)]
RUNS = 8  # of each task, each time that some runs of the others have settled


class SmallClient(Client):
    """Tasks on one event loop, which work for a moment at each beat of the plant.

    They do not take their runs from the plant: they are so fast that nothing would be left.
    """

    def __init__(self, plant: Plant, number: int, make_loop: Any) -> None:
        super().__init__(plant, number)
        assert plant.small is not None
        self._make_loop, self._index = make_loop, plant.small
        self._target = plant.targets[self._index]
        self._network = self._target.network
        self._requests = [self._network.create_infer_request() for _ in range(TASKS)]
        self._chances = [self.chance_of(task) for task in range(TASKS)]
        self._beats = plant.listen()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            for _ in self._beats():
                runner.run(self._work_for_a_moment())

    def check_end(self) -> None:
        super().check_end()
        lanes = Counter(span.lane for span in self._network.trace())
        print(f"small runs by lane: {dict(lanes)}")
        assert any(lane.endswith(".caller") for lane in lanes)

    def note_outcome(self, index: int, outcome: str) -> None:
        self.seen[index, outcome] += 1  # the plant does not wait for it

    async def _work_for_a_moment(self) -> None:
        await asyncio.gather(*(self._work(task) for task in range(TASKS)))
        mine = asyncio.current_task()
        self.left_tasks += [repr(task) for task in asyncio.all_tasks() if task is not mine]

    async def _work(self, task: int) -> None:
        chance, request = self._chances[task], self._requests[task]
        ways = (*(self._pool,) * 12, self._own, self._sync, self._late, self._cancelled)
        for _ in range(RUNS):
            way = chance.choice((*ways, self._unfit, self._streamed))
            await way(INPUTS[chance.randrange(len(INPUTS))], request)

    def _note(self, x: np.ndarray, outputs: dict[str, Any]) -> None:
        check(self._target, x, outputs)
        self._count(None)

    def _count(self, error: BaseException | None) -> None:
        self.extra_count += 1
        self.started[self._index] += not isinstance(error, TensorError)
        self.note(self._index, error)

    async def _pool(self, x: np.ndarray, _request: aioinfer.InferRequest) -> None:
        self._note(x, await self._network.infer(x))

    async def _own(self, x: np.ndarray, request: aioinfer.InferRequest) -> None:
        self._note(x, await request.infer(x))

    async def _sync(self, x: np.ndarray, request: aioinfer.InferRequest) -> None:
        self._note(x, request.infer_sync(x))

    async def _late(self, x: np.ndarray, _request: aioinfer.InferRequest) -> None:
        with pytest.raises(DeadlineExceededError) as caught:
            await self._network.infer(x, deadline_s=0)
        self._count(caught.value)

    async def _cancelled(self, x: np.ndarray, request: aioinfer.InferRequest) -> None:
        request.start_async(x)
        request.cancel()
        error = await idle(request)
        if error is None:
            check(self._target, x, request.results)
        self._count(error)

    async def _unfit(self, x: np.ndarray, _request: aioinfer.InferRequest) -> None:
        with pytest.raises(TensorError) as caught:
            await self._network.infer(x[:1])
        self._count(caught.value)

    async def _streamed(self, x: np.ndarray, _request: aioinfer.InferRequest) -> None:
        items = [x, x + 1, x + 2]
        async with aclosing(self._network.stream(items, ordered=False)) as stream:
            async for index, outputs in stream:
                self._note(items[index], outputs)
