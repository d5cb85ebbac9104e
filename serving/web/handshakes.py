"""Connections with TLS: handshakes count among the connections, and have an end.

An event loop's own servers make a connection of a socket when its handshake is done; those that
never end would not be counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sized

__all__ = ["SecureListener"]

_AFTER_FAILURE_S = 1.0  # as asyncio: what lacks are files or memory

_log = logging.getLogger("aioinfer.serving")


class SecureListener:
    """Accepts sockets until it is closed, and makes connections of those that shake hands.

    listener: a listening socket, which stays the caller's. make: of a connection. opened: those
    that are beyond their handshakes, at most ``limit`` together with these. within_s: for one
    handshake. Made and used on one event loop.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        opened: Sized,
        *,
        limit: int,
        within_s: float,
    ) -> None:
        self._listener, self._context, self._make, self._opened = listener, context, make, opened
        self._limit, self._within_s = limit, within_s
        self._shaking: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more, and end the handshakes under way."""
        for task in (self._accepting, *self._shaking):
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when nothing of it runs."""
        await asyncio.gather(self._accepting, *self._shaking, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                _log.error("no connection can be accepted: %s", error.strerror)
                await asyncio.sleep(_AFTER_FAILURE_S)
                continue
            if len(self._shaking) + len(self._opened) >= self._limit:
                accepted.close()
                continue
            task = loop.create_task(self._shake_hands(accepted))
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, accepted, ssl=self._context, ssl_handshake_timeout=self._within_s
            )
        except OSError:  # what ssl raises is one, too
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
