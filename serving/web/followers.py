"""Requests that came behind others on their connections: how soon they begin."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Followers"]


class Followers:
    """Begins one such request in each turn of the loop, whichever connection it is of.

    A client may send many at once; those of other clients, which come one by one, do not stand
    behind all of them. Used on one event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, loop: asyncio.AbstractEventLoop, begin: Callable[[], None]) -> None:
        """Have ``begin`` called when it is its turn."""
        self._waiting.append(begin)
        if len(self._waiting) == 1:
            loop.call_soon(self._begin_one, loop)

    def _begin_one(self, loop: asyncio.AbstractEventLoop) -> None:
        begin = self._waiting.popleft()
        if self._waiting:
            loop.call_soon(self._begin_one, loop)
        begin()
