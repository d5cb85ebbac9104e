"""Who uses the networks as streams, and leaves them in every way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from stress.client import ERRORS, WAIT_S, Client, check
from stress.plant import Plant
from stress.stream_plan import Feed, SourceError, StreamPlan, draw_plan, item_of

TASKS = 8


class StreamClient(Client):
    """Some tasks on one event loop, each with one stream after the other."""

    def __init__(self, plant: Plant, number: int, make_loop: Any) -> None:
        super().__init__(plant, number)
        self._make_loop = make_loop
        self._indices = [*range(plant.common_count), plant.narrow, plant.narrow]

    def run(self) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        await asyncio.gather(*(self._work(self.chance_of(task)) for task in range(TASKS)))
        mine = asyncio.current_task()
        for _ in range(2):  # the loop makes a task for each stream that was dropped
            await asyncio.sleep(0)
        closing = asyncio.all_tasks() - {mine}
        if closing:
            await asyncio.wait(closing, timeout=WAIT_S)
        self.left_tasks = [repr(task) for task in asyncio.all_tasks() - {mine}]

    async def _work(self, chance: random.Random) -> None:
        while self.plant.goes_on:
            plan = draw_plan(chance, self._indices)
            self.plant.cancel_another(chance)
            await _Reading(self, plan).read()


class _Reading:
    """One stream that is read; notes what becomes of each item that the source gave."""

    def __init__(self, client: StreamClient, plan: StreamPlan) -> None:
        self._client, self._plan = client, plan
        self._target = client.plant.targets[plan.index]
        self._feed = Feed(plan, client.plant.take)
        self._told: set[int] = set()

    async def read(self) -> None:
        plan, feed = self._plan, self._feed
        if plan.ending == "cancelled":
            task = asyncio.create_task(self._consume())
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        elif plan.ending == "timeout":
            try:
                async with asyncio.timeout(plan.timeout_s):
                    await self._consume()
            except TimeoutError:
                pass
        else:
            await self._consume()
        if plan.ending in ("dropped", "timeout") and not feed.is_closed:
            async with asyncio.timeout(WAIT_S):  # the loop does that, or the cancel came amid it
                await feed.closed.wait()
        assert feed.is_closed, plan
        self._count_the_untold()

    async def _consume(self) -> None:
        plan, feed = self._plan, self._feed
        source = feed.open()
        if plan.ending == "unread":
            await self._leave_unread(source)
            return
        try:
            await self._take_results(source)
        except SourceError:
            assert feed.has_raised
            assert len(self._told) == len(feed.given), f"lost: {plan}"
        except ERRORS as error:
            self._note_error(error)

    async def _leave_unread(self, source: Any) -> None:
        async with aclosing(self._stream(source)):
            with suppress(SourceError):
                await self._pull_one(source)

    async def _pull_one(self, source: Any) -> None:
        if self._plan.kind == "async":
            await anext(source, None)
        elif self._plan.kind == "sync":
            next(source, None)

    async def _take_results(self, source: Any) -> None:
        plan = self._plan
        if plan.ending == "dropped":
            async for results in self._stream(source):
                self._note_results(results)
                if len(self._told) > plan.after:
                    return
            return
        async with aclosing(self._stream(source)) as stream:
            async for results in stream:
                self._note_results(results)
                if len(self._told) > plan.after:
                    if plan.ending == "left":
                        return
                    if plan.ending == "cancelled":
                        asyncio.current_task().cancel()
        assert len(self._told) == len(self._feed.given), f"lost: {plan}"

    def _stream(self, source: Any) -> AsyncIterator[Any]:
        plan = self._plan
        return self._target.network.stream(source, plan.is_ordered, **plan.options)

    def _note_results(self, results: Any) -> None:
        index, outputs = (len(self._told), results) if self._plan.is_ordered else results
        assert index not in self._told, f"item {index} came twice: {self._plan}"
        check(self._target, self._feed.given[index].x, outputs)
        self._told.add(index)
        self._client.note(self._plan.index, None)

    def _note_error(self, error: BaseException) -> None:
        """Note what an item's turn has raised; it says which item."""
        index = item_of(error)
        assert index is not None, f"{error!r} is of no item: {self._plan}"
        assert index not in self._told, f"item {index} came twice: {self._plan}"
        assert index == len(self._told) or not self._plan.is_ordered
        self._told.add(index)
        self._client.note(self._plan.index, error)

    def _count_the_untold(self) -> None:
        client, index = self._client, self._plan.index
        for number, item in enumerate(self._feed.given):
            client.started[index] += item.tries
            client.again[index] += max(0, item.tries - 1)
            if number not in self._told:
                client.note_outcome(index, "unknown" if item.tries else "unstarted")
