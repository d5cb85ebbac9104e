"""Want of memory for any call of a queue: each item ends once, and each request is idle again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import pytest

import aioinfer
from aioinfer import executors
from aioinfer.errors import AioInferError
from aioinfer.runtime import network as network_room
from exhaustive import all_but
from unit.backends.answered_once import X, model
from unit.backends.failing_calls import FailingCalls

TOLD = (AioInferError, MemoryError)
JOBS = 2
WAIT_S = 20

Ask = Callable[[aioinfer.AsyncInferQueue], None]


def started(queue: aioinfer.AsyncInferQueue) -> None:
    for _ in range(JOBS + 2):
        with suppress(TOLD):
            queue.start_async({"x": X}, deadline_s=WAIT_S)
    with suppress(TOLD):
        queue.get_idle_request_id()
    waited(queue)


def waited(queue: aioinfer.AsyncInferQueue) -> None:
    """Wait for all, once more where the call itself had no memory or an item's error is told."""
    for _ in range(3):
        try:
            queue.wait_all()
        except (*TOLD, ExceptionGroup):
            continue
        return


def called_back(queue: aioinfer.AsyncInferQueue) -> None:
    with suppress(TOLD):
        queue.set_callback(lambda request, _: request.results)
    started(queue)


def awaited(queue: aioinfer.AsyncInferQueue) -> None:
    async def ask() -> None:
        for _ in range(JOBS + 2):
            with suppress(TOLD):
                await asyncio.wait_for(queue.start({"x": X}), WAIT_S)
        for _ in range(3):
            try:
                await asyncio.wait_for(queue.wait_all_async(), WAIT_S)
            except (*TOLD, ExceptionGroup):
                continue
            return

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("room", "ask"),
    all_but(
        [(network_room, started)],
        [
            (room, ask)
            for room in (network_room, executors)
            for ask in (started, called_back, awaited)
        ],
    ),
)
def test_each_request_is_idle_again_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, room: ModuleType, ask: Ask
) -> None:
    with core.load_network(model(), "REFERENCE") as network:
        queue = aioinfer.AsyncInferQueue(network, JOBS)
        ask(queue)
        calls = FailingCalls(room, monkeypatch)
        for number in range(1000):
            calls.arm(number)
            asking = threading.Thread(target=ask, args=(queue,), daemon=True)
            asking.start()
            asking.join(WAIT_S)
            calls.disarm()
            assert not asking.is_alive(), f"a request is lost: {calls.where}"
            assert len(queue._idle) == JOBS, calls.where
            if not calls.where:
                break
        assert number > 20, "calls were not seen"
