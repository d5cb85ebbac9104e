"""One task beside the one that needs it, on asyncio and trio, and the event between the two.

A generator must not hold a nursery or a task group open over its yields, so its helper is a task of
its own: a plain one on asyncio, a system task on trio. It takes its errors with it; the generator
cancels it and waits for its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ...executors.late_imports import late_imports
from .completion import on_trio, until

if TYPE_CHECKING:
    import asyncio

__all__ = ["AutoResetEvent", "SideTask", "start_side_task"]

Work = Callable[[], Coroutine[Any, Any, None]]

_running: set[SideTask] = set()
"""Loops hold their tasks weakly; these are held until they have ended."""


class AutoResetEvent:
    """An event for one waiting task, which resets it; set without a waiter, it stays set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._wake: Callable[[], None] | None = None

    def set(self) -> None:
        """Wake the task that waits, or make the next wait return at once; from any thread."""
        with self._lock:
            self._is_set = True
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    async def wait(self) -> None:
        """Suspend until it is set, and reset it; look at what has changed afterwards."""
        await until(self._register, lambda: None)
        self._is_set = False

    def _register(self, wake: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_set:
                self._wake = wake
                return
        wake()


async def _nothing() -> None:
    pass


class SideTask:
    """A task that does ``work``, which may be cancelled, and then ``clean_up``, which is not.

    One that is cancelled before it begins does the clean-up alone.
    Not thread-safe: all calls come from the loop that it belongs to.
    """

    def __init__(self, work: Work, clean_up: Work) -> None:
        self._work, self._clean_up = work, clean_up
        self._ended = AutoResetEvent()
        self._is_working = self._has_ended = self._is_cancelled = False
        self._error: Exception | None = None

    def cancel(self) -> None:
        """Have the work end where it waits; the clean-up comes all the same."""
        if not self._is_cancelled:
            self._is_cancelled = True
            if self._is_working:
                self._interrupt()

    async def wait_until_ended(self) -> None:
        """Suspend until it has ended, cancelled or not, and raise the error it ended with, once."""
        with late_imports:
            from anyio import CancelScope

        with CancelScope(shield=True):
            while not self._has_ended:
                await self._ended.wait()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # the traceback keeps this frame; it must not keep them

    def start(self) -> None:
        """Begin on the loop of the calling task."""
        raise AssertionError("a side task knows the loop it runs on")

    def _interrupt(self) -> None:
        raise AssertionError("a side task knows the loop it runs on")

    async def _run(self) -> None:
        try:
            try:
                if not self._is_cancelled:
                    self._is_working = True
                    await self._cancellable()
            finally:
                self._is_working = False
                await self._clean_up()
        except Exception as error:
            self._error = error
        finally:
            self._has_ended = True
            self._work = self._clean_up = _nothing  # those hold what holds this
            _running.discard(self)
            self._ended.set()

    async def _cancellable(self) -> None:
        await self._work()


class _AsyncioTask(SideTask):
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        import asyncio

        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._make_sure)

    def _make_sure(self, _task: Any) -> None:
        """Begin again, for the clean-up, if it was cancelled before its first step.

        asyncio ends such a task without running it; only others do so, like the end of a loop.
        """
        if self._has_ended:
            self._task = None  # which has an error whose traceback holds this
        else:
            self._is_cancelled = True
            self.start()

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _TrioTask(SideTask):
    def start(self) -> None:
        from contextvars import copy_context

        import trio

        self._scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._run, context=copy_context())

    def _interrupt(self) -> None:
        self._scope.cancel()

    async def _cancellable(self) -> None:
        with self._scope:
            await self._work()


def start_side_task(work: Work, clean_up: Work) -> SideTask:
    """Start a task on the loop of the calling one, in its context; see SideTask."""
    task: SideTask = _TrioTask(work, clean_up) if on_trio() else _AsyncioTask(work, clean_up)
    _running.add(task)
    task.start()
    return task
