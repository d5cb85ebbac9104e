"""The calls of the shared memory extension."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..regions import SharedRegions

__all__ = ["region_calls"]

Call = Callable[[Any, Any, Any], Awaitable[None]]


def region_calls(regions: SharedRegions) -> dict[str, Call]:
    """Return what is done for each call, by its name."""

    async def status(request: Any, answer: Any, context: Any) -> None:
        for state in regions.states(request.name):
            told = answer.regions[state.name]
            told.name, told.key = state.name, state.key
            told.offset, told.byte_size = state.offset, state.byte_size

    async def register(request: Any, answer: Any, context: Any) -> None:
        regions.register(request.name, request.key, request.offset, request.byte_size)

    async def unregister(request: Any, answer: Any, context: Any) -> None:
        regions.unregister(request.name)

    return {
        "SystemSharedMemoryStatus": status,
        "SystemSharedMemoryRegister": register,
        "SystemSharedMemoryUnregister": unregister,
    }
