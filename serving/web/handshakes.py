"""TLS in front of a connection: handshakes count among the connections, and have an end.

asyncio makes a connection of a socket when its handshake is done; those that never end would be
counted by nobody.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

__all__ = ["Handshake", "HandshakeCount"]


class HandshakeCount:
    """How many handshakes are under way; ``limit`` is on them and on open connections together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.under_way = limit, 0


class Handshake(asyncio.Protocol):
    """One socket until its handshake is done, which hands it to ``connection``.

    connection: as uvicorn made it; its ``connections`` are those that are open.
    """

    def __init__(
        self,
        connection: Any,
        context: ssl.SSLContext,
        count: HandshakeCount,
        within_s: float,
    ) -> None:
        self._connection, self._context, self._count = connection, context, count
        self._within_s = within_s
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        if self._count.under_way + len(self._connection.connections) >= self._count.limit:
            transport.abort()
            return
        transport.pause_reading()
        self._count.under_way += 1
        self._task = asyncio.get_running_loop().create_task(self._shake(transport))

    async def _shake(self, transport: Any) -> None:
        early = _Early()
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._within_s,
            )
        except (OSError, ConnectionError):  # what ssl raises is an OSError
            transport.abort()
            return
        finally:
            self._count.under_way -= 1
        if secure is None or early.is_lost:
            return
        secure.set_protocol(self._connection)
        self._connection.connection_made(secure)
        for piece in early.pieces:
            if not secure.is_closing():
                self._connection.data_received(piece)


class _Early(asyncio.Protocol):
    """What comes with the last bytes of a handshake, before there is a connection for it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.pieces.append(bytes(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
