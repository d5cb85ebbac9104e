"""Writes of one turn of the event loop, joined: a head and its body are one system call.

It is a packet less, too, and the client wakes once.
"""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["JoinedWrites"]

_JOINED_BYTES = 64 << 10  # copying more costs more than the call


class JoinedWrites:
    """A transport whose writes wait for the next one, at most until the loop comes round.

    Everything else is the transport's own. Used on its event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: bytes | bytearray = b""
        self._timer: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray) -> None:
        """Write behind what waits, or wait for the next write; what is long never waits."""
        if len(data) > _JOINED_BYTES:
            self._flush()
            self._transport.write(data)
        elif self._timer is None:
            self._held = data
            self._timer = self._loop.call_soon(self._flush)
        else:
            held = self._take()
            self._transport.write(b"".join((held, data)))

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Write a whole answer now, behind what waits."""
        if len(body) > _JOINED_BYTES:
            self.write(head)
            self.write(body)
        else:
            self._flush()
            self._transport.write(b"".join((head, body)))

    def close(self) -> None:
        """Write what waits, and close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Drop what waits, and close at once."""
        self._take()
        self._transport.abort()

    def _flush(self) -> None:
        if held := self._take():
            self._transport.write(held)

    def _take(self) -> bytes | bytearray:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, b""
        return held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
