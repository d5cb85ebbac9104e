"""Work for a client that may go away: it ends with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from starlette.types import Receive

from ..begun import Begun
from ..failures import CLIENT_GONE
from ..protocol.refusal import RefusedError

__all__ = ["while_connected"]

T = TypeVar("T")


async def while_connected(work: Awaitable[T], receive: Receive) -> T:
    """Return what the work returns; cancel it when the client disconnects.

    receive: of a request whose body was read. Raises RefusedError with CLIENT_GONE then. Nothing
    outlives the call, however it ends. Work that does not wait, or only gives the loop a turn, is
    not watched: a task for that is made when the loop comes round again, which is after it.
    """
    begun = Begun(work)
    if begun.is_over:
        return begun.result
    task = asyncio.current_task()
    assert task is not None
    watch = _Watch(task, receive)
    watch.begin_after_turns(2)
    try:
        return await begun
    except asyncio.CancelledError:
        if watch.take_back():
            raise RefusedError("the client has gone", status=CLIENT_GONE) from None
        raise
    finally:
        watch.beginning.cancel()
        if watch.task is not None:
            watch.take_back()
            await watch.end()


class _Watch:
    """Cancels a task when its client disconnects."""

    def __init__(self, watched: asyncio.Task[object], receive: Receive) -> None:
        self._watched, self._receive = watched, receive
        self._cancelled_before = watched.cancelling()
        self._has_cancelled = self._is_over = False
        self._loop = asyncio.get_running_loop()
        self.beginning: asyncio.Handle
        self.task: asyncio.Task[None] | None = None

    def begin_after_turns(self, count: int) -> None:
        """Begin when the loop has come round so often."""
        if count:
            self.beginning = self._loop.call_soon(self.begin_after_turns, count - 1)
        else:
            self.task = self._loop.create_task(self._wait())

    async def _wait(self) -> None:
        with suppress(Exception):  # a client that cannot be listened to has gone, too
            while (await self._receive())["type"] != "http.disconnect":
                pass
        if not self._is_over:  # else it was the end of this watch that it could not bear
            self._has_cancelled = self._watched.cancel()

    def take_back(self) -> bool:
        """Undo the cancellation by this; False if there was none, or another one beside it."""
        if not self._has_cancelled:
            return False
        self._has_cancelled = False
        return self._watched.uncancel() <= self._cancelled_before

    async def end(self) -> None:
        assert self.task is not None
        self._is_over = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
