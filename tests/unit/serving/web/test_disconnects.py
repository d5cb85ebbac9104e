"""Work ends with its client, and what asks for no time is not watched."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from aioinfer.errors import DeadlineExceededError
from aioinfer.serving.protocol.refusal import RefusedError
from aioinfer.serving.web.disconnects import while_connected


class Client:
    """Leaves when it is told to; counts how often it was asked."""

    def __init__(self) -> None:
        self.leave, self.asked = asyncio.Event(), 0

    async def receive(self) -> MutableMapping[str, Any]:
        self.asked += 1
        await self.leave.wait()
        return {"type": "http.disconnect"}


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


async def test_work_that_does_not_wait_is_not_watched() -> None:
    client = Client()

    async def work() -> int:
        return 7

    assert await while_connected(work(), client.receive) == 7
    await checkpoint()
    assert (client.asked, others()) == (0, set())


async def test_work_that_waits_is_answered_and_its_watch_ends() -> None:
    client = Client()

    async def work() -> int:
        while not client.asked:
            await checkpoint()
        return 7

    assert await while_connected(work(), client.receive) == 7
    assert others() == set()


async def test_work_ends_with_its_client() -> None:
    client, ended = Client(), list[str]()
    call = asyncio.ensure_future(while_connected(forever(ended), client.receive))
    while not client.asked:
        await checkpoint()
    client.leave.set()
    with pytest.raises(RefusedError) as caught:
        await call
    assert (caught.value.status, ended, call.cancelling(), others()) == (
        499,
        ["cancelled"],
        0,
        set(),
    )


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_work_ends_with_a_client_that_leaves_before_it_is_watched(turns: int) -> None:
    client, ended = Client(), list[str]()
    call = asyncio.ensure_future(while_connected(forever(ended), client.receive))
    for _ in range(turns):
        await checkpoint()
    assert client.asked == 0
    client.leave.set()
    with pytest.raises(RefusedError, match="gone"):
        await call
    assert (ended, others()) == (["cancelled"], set())


async def test_a_client_that_cannot_be_listened_to_has_gone() -> None:
    async def receive() -> MutableMapping[str, Any]:
        raise ConnectionResetError

    ended: list[str] = []
    with pytest.raises(RefusedError, match="gone"):
        await while_connected(forever(ended), receive)
    assert ended == ["cancelled"]


async def test_work_that_is_done_is_answered_whatever_listening_makes_of_its_end() -> None:
    """What stands between may turn its own cancellation into an error."""
    asked = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        asked.set()
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            raise ConnectionResetError from None

    async def work() -> int:
        await asked.wait()
        return 7

    call = asyncio.ensure_future(while_connected(work(), receive))
    assert await call == 7
    assert (call.cancelling(), others()) == (0, set())


async def test_another_cancellation_stays_one() -> None:
    client, ended = Client(), list[str]()
    call = asyncio.ensure_future(while_connected(forever(ended), client.receive))
    while not client.asked:
        await checkpoint()
    call.cancel()
    client.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (ended, others()) == (["cancelled"], set())


async def test_what_the_work_makes_of_its_end_is_told() -> None:
    """And the cancellation is taken back: who goes on may wait."""
    client = Client()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise DeadlineExceededError("late") from None

    async def outer() -> None:
        try:
            await while_connected(work(), client.receive)
        finally:
            await checkpoint()

    call = asyncio.ensure_future(outer())
    while not client.asked:
        await checkpoint()
    client.leave.set()
    with pytest.raises(DeadlineExceededError):
        await call
    assert others() == set()
