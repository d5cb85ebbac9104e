"""Awaited calls that share a run: what a network that has them offers, and what they get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

    from ..loops.inline_turn import InlineTurn

__all__ = ["Share", "SharedRoute"]


class Share(Protocol):
    """One caller's part of a run; on the thread of the caller's loop only."""

    future: asyncio.Future[None]
    """Done once there is an outcome."""

    def leave(self) -> None:
        """Give it up: no caller will ask for the results."""

    def results(self) -> dict[str, Any]:
        """Return the outputs, or raise the error; when ``future`` is done."""


class SharedRoute(Protocol):
    """The way of a network's awaited calls into runs that they share. Thread-safe."""

    def join(self, inputs: Any, turn: InlineTurn) -> Share | None:
        """Have a call of a task of asyncio wait; None: nothing was kept, it needs its own run.

        ``turn`` is the account of the calling thread.

        Never raises for what is wrong with the call: one of its own says that.
        """
