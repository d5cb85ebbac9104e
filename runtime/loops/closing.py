"""What is closed: by a call, a ``with`` or ``async with`` block, or without blocking the loop."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import Self

from ...errors import DeviceError
from ...executors.base import refuse_own_thread
from ...executors.late_imports import late_imports
from ...executors.shortage import start_thread

__all__ = ["Closing"]

_log = logging.getLogger("aioinfer")


class Closing(ABC):
    """What has to be closed, by a call or at the end of a block."""

    _late_closer: threading.Thread | None = None
    """Goes on where a close has given up."""

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

    def _close_later(self, name: str) -> None:
        """Have a thread of its own wait for what a close with a bound on time has not, and close.

        Where none can be started, that is left to the next close.
        """
        closer = self._late_closer
        if closer is not None and closer.is_alive():
            return
        closer = threading.Thread(
            target=self._close_late, name=f"aioinfer.close.{name}", daemon=True
        )
        try:
            start_thread(closer)
        except (DeviceError, RuntimeError) as error:  # Python 3.12 starts none at exit
            _log.info("%r is left to the next close: %s", self, error)
        else:
            self._late_closer = closer

    def _join_late_closer(self) -> None:
        """Wait for such a thread, for which nothing is left to do, so that none is left behind."""
        closer = self._late_closer
        if closer is not None and closer is not threading.current_thread():
            closer.join()
            self._late_closer = None

    def _close_late(self) -> None:
        try:
            self.close()
        except Exception:
            _log.exception("closing %r, for which a close had not waited", self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()
