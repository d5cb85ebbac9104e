"""One queue whose callbacks belong to several event loops at once, in threads of their own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
import trio

import aioinfer
from onnx_text import parse_proto

MODEL = parse_proto("tiny (float[n,3] x) => (float[n,3] y) { y = Relu (x) }")
X = np.ones((1, 3), np.float32)
WAIT_S = 20.0


@contextmanager
def asyncio_loop() -> Iterator[tuple[Any, Any]]:
    """A loop that runs in a thread, and what closes it; it is closed at the end in any case."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()

    def close() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(WAIT_S)
        assert not thread.is_alive()

    try:
        yield loop, close
    finally:
        close()


@contextmanager
def trio_loop() -> Iterator[tuple[Any, Any]]:
    """The same of trio, with its token."""
    running = threading.Event()
    made: list[Any] = []

    async def main() -> None:
        stop = trio.Event()
        made.extend((trio.lowlevel.current_trio_token(), stop))
        running.set()
        await stop.wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert running.wait(WAIT_S)
    token, stop = made

    def close() -> None:
        if thread.is_alive():
            token.run_sync_soon(stop.set)
            thread.join(WAIT_S)
        assert not thread.is_alive()

    try:
        yield token, close
    finally:
        close()


@contextmanager
def three_loops() -> Iterator[list[tuple[Any, Any]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(make()) for make in (asyncio_loop, asyncio_loop, trio_loop)]


def running_loop() -> Any:
    if trio.lowlevel.in_trio_run():
        return trio.lowlevel.current_trio_token()
    return asyncio.get_running_loop()


async def turn() -> None:
    """Turn the loop once, whichever it is."""
    if trio.lowlevel.in_trio_run():
        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:CPU,REFERENCE"])
def test_each_item_is_told_on_the_loop_that_was_set_when_it_started(
    core: aioinfer.Core, device: str
) -> None:
    told: Counter[tuple[int, int]] = Counter()
    with core.load_network(MODEL, device) as network, three_loops() as loops:
        queue = aioinfer.AsyncInferQueue(network, 3)

        def feed(feeder: int) -> None:
            for number in range(60):
                queue.start_async(X, (feeder, number))

        async def slowly(request: aioinfer.InferRequest, item: tuple[int, int]) -> None:
            await turn()
            assert running_loop() in [loop for loop, _ in loops]
            np.testing.assert_array_equal(request.results["y"], X)
            told[item] += 1

        def at_once(request: aioinfer.InferRequest, item: tuple[int, int]) -> None:
            np.testing.assert_array_equal(request.results["y"], X)
            told[item] += 1

        queue.set_callback(slowly, loops[0][0])
        feeders = [threading.Thread(target=feed, args=(number,)) for number in range(3)]
        for feeder in feeders:
            feeder.start()
        for number in range(60):
            loop = loops[number % 3][0]
            queue.set_callback(slowly if number % 2 else at_once, loop)
            if number % 5 == 0:
                queue.set_callback(at_once)
        for feeder in feeders:
            feeder.join(WAIT_S)
            assert not feeder.is_alive()
        queue.wait_all()
    assert told == Counter((feeder, number) for feeder in range(3) for number in range(60))


@pytest.mark.parametrize("place", range(3))
def test_a_loop_that_closes_amid_items_takes_its_own_callbacks_alone(
    core: aioinfer.Core, place: int
) -> None:
    """The items of the others are told, and all requests are idle in the end."""
    told: Counter[tuple[int, int]] = Counter()
    with core.load_network(MODEL, "REFERENCE") as network, three_loops() as loops:
        queues = [aioinfer.AsyncInferQueue(network, 2) for _ in loops]

        def callback_of(owner: int) -> Any:
            def tell(_request: aioinfer.InferRequest, number: int) -> None:
                told[owner, number] += 1

            async def tell_slowly(request: aioinfer.InferRequest, number: int) -> None:
                tell(request, number)
                await turn()

            return tell if owner == place else tell_slowly

        for owner, (queue, (loop, _)) in enumerate(zip(queues, loops, strict=True)):
            queue.set_callback(callback_of(owner), loop)
        halfway = threading.Barrier(4)

        def feed(owner: int) -> None:
            for number in range(60):
                if number == 30:
                    halfway.wait(WAIT_S)
                queues[owner].start_async(X, number)

        feeders = [threading.Thread(target=feed, args=(owner,)) for owner in range(3)]
        for feeder in feeders:
            feeder.start()
        halfway.wait(WAIT_S)
        loops[place][1]()
        for feeder in feeders:
            feeder.join(WAIT_S)
            assert not feeder.is_alive()
        for queue in queues:
            queue.wait_all()
            assert len(queue._idle) == len(queue)
    for owner in range(3):
        items = [told[owner, number] for number in range(60)]
        assert max(items) == 1
        assert sum(items) >= 28 if owner == place else sum(items) == 60
