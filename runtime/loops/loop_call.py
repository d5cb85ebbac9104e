"""One call of a user's function on an event loop: sent from any thread, or lost with the loop.

After ``send`` the loop alone holds the call, and then the task of a coroutine, so what becomes of
the loop shows: it calls, it refuses, or it drops what it never called. Each ends in ``over``, once.
A task is held by what its loop waits with, so that it lives as long as the loop and no longer.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from inspect import isawaitable
from typing import Any

from .completion import keep_task, on_trio

__all__ = ["LoopCall", "is_loop", "is_running_here"]

Over = Callable[[BaseException | None, str], None]
"""Gets the error of the function, and what else kept it from its end: "" is nothing. No raise."""

_CANCELLED = "was cancelled before it had ended"


def is_loop(given: Any) -> bool:
    """True for what a LoopCall can be sent to: an asyncio event loop or a trio token."""
    return _is_token(given) or callable(getattr(given, "call_soon_threadsafe", None))


def is_running_here(loop: Any) -> bool:
    """True on the thread of a loop, or of a token's run, while that calls something."""
    if not _is_token(loop):
        import asyncio

        return asyncio._get_running_loop() is loop
    if not on_trio():
        return False
    import trio

    return trio.lowlevel.current_trio_token() is loop


def _is_token(given: Any) -> bool:
    return callable(getattr(given, "run_sync_soon", None))


class LoopCall:
    """A call of ``function`` in ``context``; what it returns is awaited there if it can be.

    ``over`` is called once: on the loop, or on any thread if the loop was closed. An exception that
    ends the loop (KeyboardInterrupt, a cancellation) goes on to it as well.
    """

    def __init__(
        self, loop: Any, function: Callable[[], Any], context: Context, over: Over
    ) -> None:
        self._loop, self._context = loop, context
        self._function: Callable[[], Any] | None = function
        self._over: Over | None = over

    def send(self) -> None:
        """Have the loop call it soon; from any thread, once. If it raises, ``over`` never comes."""
        loop, self._loop = self._loop, None  # it holds this from now on
        try:
            (loop.run_sync_soon if _is_token(loop) else loop.call_soon_threadsafe)(self)
        except RuntimeError:  # so say both kinds
            self._end(None, "was not called, for its event loop is closed")
        except BaseException:  # no memory; the loop may have it all the same
            self._over = self._function = None
            raise

    def __call__(self) -> None:
        is_trio = on_trio()
        function, self._function = self._function, None  # a task that is never done holds nothing
        if function is None:  # sending it has failed
            return
        try:
            result = self._context.run(function)
            if isawaitable(result):
                self._spawn(result, is_trio)
                return
        except BaseException as error:
            self._end(error)
            if not (is_trio or isinstance(error, Exception)):
                raise
            return
        self._end(None)

    def _spawn(self, awaitable: Awaitable[Any], is_trio: bool) -> None:
        if is_trio:
            import trio

            carry = self._carry_on_trio
            trio.lowlevel.spawn_system_task(carry, awaitable, context=self._context)
        else:
            import asyncio

            loop = asyncio.get_running_loop()
            task = self._context.run(loop.create_task, self._carry(awaitable))
            keep_task(loop, task, self._lose)

    async def _carry(self, awaitable: Awaitable[Any]) -> None:
        import asyncio

        try:
            await awaitable
        except asyncio.CancelledError:
            self._end(None, _CANCELLED)
            raise
        except GeneratorExit:
            self._lose()
            raise
        except BaseException as error:
            self._end(error)
            if not isinstance(error, Exception):
                raise
        else:
            self._end(None)

    async def _carry_on_trio(self, awaitable: Awaitable[Any]) -> None:
        import trio

        try:
            await awaitable
        except trio.Cancelled:
            self._end(None, _CANCELLED)
            raise
        except BaseExceptionGroup as group:
            cancelled, rest = group.split(trio.Cancelled)
            self._end(rest, "" if rest else _CANCELLED)
            if cancelled is not None:
                raise cancelled from None
        except BaseException as error:  # it would bring down the whole run of trio
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None, lost: str = "") -> None:
        over, self._over = self._over, None
        if over is not None:
            over(error, lost)

    def _lose(self) -> None:
        """End it from a thread that holds nothing: the collector may call this amid anything."""
        over, self._over = self._over, None
        if over is not None:
            lost = "did not come to its end before its event loop was closed"
            with suppress(RuntimeError):  # the interpreter exits
                threading.Thread(target=over, args=(None, lost), daemon=True).start()

    __del__ = _lose
