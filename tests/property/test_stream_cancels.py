"""Many streams at once over real devices, each ended at random: nothing hangs, nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing
from typing import Any

import anyio
import numpy as np
import pytest
import trio

import aioinfer
from aioinfer.errors import DeadlineExceededError, OverloadedError, TensorError
from aioinfer.runtime.loops import side_task
from aioinfer.runtime.loops.completion import let_loop_turn
from unit.runtime.models import expected, tiny_model

STREAM_COUNT = 60
DEVICES = {
    "REFERENCE": {},
    "HETERO:REFERENCE.0,REFERENCE.1": {"AFFINITY": {"relu": "REFERENCE.0", "add": "REFERENCE.1"}},
}


class PlantedError(Exception):
    """What sources raise here."""


class Consumers:
    """Streams with a random source, consumer and end; counts how they ended."""

    def __init__(self, network: aioinfer.ExecutableNetwork, seed: int) -> None:
        self.network, self.chance = network, random.Random(seed)
        self.ended: Counter[str] = Counter()
        self.open_source_count = 0

    def items(self, length: int) -> Generator[np.ndarray]:
        self.open_source_count += 1
        try:
            for number in range(length):
                if self.chance.random() < 0.02:
                    raise PlantedError
                bad = self.chance.random() < 0.02
                yield np.zeros((1, 9), np.float32) if bad else np.full((1, 3), number, np.float32)
        finally:
            self.open_source_count -= 1

    async def async_items(self, length: int) -> AsyncIterator[np.ndarray]:
        items = self.items(length)
        try:
            for x in items:
                if self.chance.random() < 0.3:
                    await let_loop_turn()
                yield x
        finally:
            items.close()

    async def consume(self) -> None:
        chance = self.chance
        length, leaves_at = chance.randrange(30), chance.choice([None, None, chance.randrange(20)])
        source: Any = chance.choice([self.items, self.async_items])(length)
        is_ordered = chance.random() < 0.5
        options: dict[str, Any] = {
            "look_ahead": chance.choice([None, 1, 5]),
            "deadline_s": chance.choice([None, None, 3600.0, 0.0]),
            "priority": chance.randrange(3),
        }
        count = 0
        try:
            async with aclosing(self.network.stream(source, is_ordered, **options)) as stream:
                async for item in stream:
                    index, outputs = (count, item) if is_ordered else item
                    x = np.full((1, 3), index, np.float32)
                    np.testing.assert_array_equal(outputs["y"], expected(x))
                    count += 1
                    if count == leaves_at:
                        break
            self.ended["left" if count == leaves_at else "read to its end"] += 1
        except (PlantedError, TensorError, DeadlineExceededError, OverloadedError) as error:
            self.ended[type(error).__name__] += 1

    async def run(self) -> None:
        async def cancellable(scope: anyio.CancelScope) -> None:
            with scope:
                await self.consume()
            self.ended["cancelled"] += scope.cancelled_caught

        scopes = [anyio.CancelScope() for _ in range(STREAM_COUNT)]
        async with anyio.create_task_group() as group:
            for scope in scopes:
                group.start_soon(cancellable, scope)
            for scope in self.chance.sample(scopes, k=STREAM_COUNT // 3):
                for _ in range(self.chance.randrange(3)):
                    await let_loop_turn()
                scope.cancel()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("device", DEVICES)
def test_streams_end_at_random(device: str, loop: str, seed: int) -> None:
    with aioinfer.Core() as core:
        config = {**DEVICES[device], "MAX_QUEUED_REQUESTS": 100}
        network = core.load_network(tiny_model(), device, config)
        consumers = Consumers(network, seed)
        if loop == "asyncio":
            asyncio.run(consumers.run())
        else:
            trio.run(consumers.run)
        network.close()
        admission = network.admission
        assert (admission.run_count, len(admission.runs)) == (0, 0)
        assert len(admission._idle) == admission.slot_count
    assert sum(consumers.ended.values()) == STREAM_COUNT
    assert consumers.ended["cancelled"] > 0
    assert consumers.ended["read to its end"] > 0
    assert consumers.open_source_count == 0
    assert not side_task._running
