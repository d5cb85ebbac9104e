"""What is closed: by a call, a ``with`` or ``async with`` block, or without blocking the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from ...executors.base import refuse_own_thread
from ...executors.late_imports import late_imports

__all__ = ["Closing"]


class Closing(ABC):
    """What has to be closed, by a call or at the end of a block."""

    @abstractmethod
    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """Give back what it holds; False if that was still in use after ``timeout_s``. Blocks."""

    async def aclose(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """Close without blocking the event loop; otherwise as ``close``.

        On a loop that a function of the user's runs on one of aioinfer's own threads, it raises
        RequestStateError, as that thread is waited for.
        """
        refuse_own_thread("aclose")
        with late_imports:
            from anyio import CancelScope, to_thread

        with CancelScope(shield=True):
            done = await to_thread.run_sync(lambda: self.close(drain=drain, timeout_s=timeout_s))
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()
