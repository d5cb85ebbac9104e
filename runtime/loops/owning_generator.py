"""An async generator that owns something, and releases it even if it was never read.

Python runs nothing of a generator that is closed before it began, so its ``finally`` cannot give
back what the generator was handed. Here closing comes by this object, which asks the owner
afterwards. ``async for`` reads the generator itself: items cost nothing more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

__all__ = ["OwningGenerator"]


class OwningGenerator(AsyncGenerator[Any, None]):
    """Hands out a generator; ``end_unread`` is awaited after each close, in the closing task.

    It does nothing if the generator had begun, or nothing is owned any more. Not thread-safe.
    """

    def __init__(
        self, generator: AsyncGenerator[Any, None], end_unread: Callable[[], Awaitable[None]]
    ) -> None:
        self._generator, self._end_unread = generator, end_unread

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        return self._generator

    def __anext__(self) -> Any:
        return self._generator.__anext__()

    def asend(self, value: None, /) -> Any:
        return self._generator.asend(value)

    async def athrow(self, *reason: Any) -> Any:
        try:
            return await self._generator.athrow(*reason)
        finally:
            await self._end_unread()

    async def aclose(self) -> None:
        try:
            await self._generator.aclose()
        finally:
            await self._end_unread()
