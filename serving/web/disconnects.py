"""Work for a client that may go away: it ends with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

from ..failures import CLIENT_GONE
from ..protocol.refusal import RefusedError

__all__ = ["while_connected"]

T = TypeVar("T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return what the work returns; cancel it when the client disconnects.

    receive: of a request whose body was read. Raises RefusedError with CLIENT_GONE then. Nothing
    outlives the call, however it ends.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise RefusedError("the client has gone", status=CLIENT_GONE)
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
