"""Work that has begun goes on as it would have, and ends where it does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from anyio.lowlevel import checkpoint

from aioinfer.serving.begun import Begun


async def test_work_that_does_not_wait_is_over_at_once() -> None:
    async def work() -> int:
        return 7

    begun = Begun(work())
    assert (begun.is_over, begun.result, await begun) == (True, 7, 7)


async def test_what_it_raises_at_once_is_raised_at_once() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Begun(work())


async def test_work_that_waits_goes_on_with_what_it_waited_for() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def work() -> tuple[int, int]:
        return await first, await second

    begun = Begun(work())
    assert not begun.is_over
    task = asyncio.ensure_future(begun)
    await checkpoint()
    first.set_result(1)
    await checkpoint()
    second.set_result(2)
    assert await task == (1, 2)


async def test_its_errors_and_turns_of_the_loop_are_its_own() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await Begun(work())


async def test_it_is_told_that_it_is_cancelled_and_may_go_on() -> None:
    told: list[str] = []

    async def work() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
        await asyncio.sleep(0)
        return 7

    task = asyncio.ensure_future(Begun(work()))
    await checkpoint()
    task.cancel()
    assert (await task, told) == (7, ["cancelled"])


async def test_a_timeout_inside_is_of_the_task_that_awaits_it() -> None:
    async def work() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await Begun(work())


async def test_the_next_item_of_a_generator_is_work_too() -> None:
    async def items() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(0)
        yield 2

    each = items()
    first, second = Begun(anext(each)), Begun(anext(each))
    assert (first.is_over, await first, second.is_over, await second) == (True, 1, False, 2)
    with pytest.raises(StopAsyncIteration):
        Begun(anext(each))
    await each.aclose()


async def test_work_that_nobody_goes_on_with_is_closed() -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("closed")

    steps = Begun(work()).__await__()
    next(steps)
    steps.close()
    assert told == ["closed"]
