"""Waking event loops: one coalesced wake-up per loop for all that finished meanwhile.

Theory of operation. A thread that ends a run posts a function to the loop of the task that awaits
it. Each loop has one :class:`LoopWaker`: a deque and an "awake" flag. The first post wakes the
loop, by an eventfd that it reads (half the time of asyncio's ``call_soon_threadsafe``, which is
there where no eventfd is) or by ``TrioToken.run_sync_soon``; the posts that come before the loop
gets there ride along. A loop that was closed drops the answer, and nothing else.

References. A waker holds what it was posted, and so futures and their loop. Nothing may hold it
that outlives the loop: a waker with an eventfd is held by its loop alone, as the reader of it, so
closing the loop gives it back with the eventfd and the answers that were not taken, whatever is
still under way. Runs and tables know it weakly. Loops that watch no descriptors hold their waker
only while a wake-up is on its way; the runs under way and the loop's thread hold it as well.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, finalize, ref

__all__ = [
    "FindWaker",
    "keep_task",
    "let_loop_turn",
    "must_end",
    "new_future",
    "on_asyncio",
    "on_trio",
    "until",
    "until_told",
]

if TYPE_CHECKING:
    import asyncio

Register = Callable[[Callable[[], None]], None]


async def until(register: Register, on_cancel: Callable[[], None]) -> None:
    """Suspend until the function that ``register`` gets is called, from any thread, once.

    Works on asyncio (uvloop too) and trio. If the awaiting task is cancelled first, ``on_cancel``
    is called and the library's own cancellation goes on. Raises RuntimeError outside a loop.
    """
    if "trio" in sys.modules and on_trio():
        await _until_trio(register, on_cancel)
        return
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    find_waker = _thread.find_waker
    known = find_waker()
    if known is None or known.loop() is not loop:
        find_waker = _thread.find_waker = _finder_of(loop, _AsyncioWaker)
    # This frame lives as long as the run: it must know the waker no better than the run does.
    del known

    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        waker = find_waker()
        if waker is not None:  # it goes with its loop
            waker.post(resolve)

    register(wake)
    try:
        await future
    except BaseException:
        on_cancel()
        raise


def new_future() -> tuple[asyncio.Future[None], FindWaker]:
    """Make what a task of asyncio awaits, and what finds the mailbox of its loop; on its thread.

    Raises RuntimeError outside a loop of asyncio.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    find_waker = _thread.find_waker
    known = find_waker()
    if known is None or known.loop() is not loop:
        find_waker = _thread.find_waker = _finder_of(loop, _AsyncioWaker)
    return loop.create_future(), find_waker


async def until_told(register: Register, forget: Register) -> None:
    """Suspend as ``until``; a task that is cancelled leaves nothing to be called."""
    registered: list[Callable[[], None]] = []

    def note(wake: Callable[[], None]) -> None:
        registered.append(wake)
        register(wake)

    def take_back() -> None:
        for wake in registered:
            forget(wake)

    await until(note, take_back)


def keep_task(loop: Any, task: Any, lose: Callable[[], None]) -> None:
    """Hold a task of asyncio as long as its loop is open, which itself does not; on its thread.

    ``lose`` is called if the loop is closed before the task has ended.
    """
    waker = _finder_of(loop, _AsyncioWaker)()
    if waker is not None:
        tasks = waker.tasks
        tasks[task] = lose
        task.add_done_callback(lambda ended: tasks.pop(ended, None))


async def let_loop_turn() -> None:
    """Suspend until the loop has gone round once: other tasks, timers and input come first."""
    if on_trio():
        import trio

        await trio.lowlevel.checkpoint()
    else:
        await _suspend()


@types.coroutine
def _suspend() -> Generator[None, None, None]:
    yield  # what an asyncio task takes for "go on with me in the next round"


def must_end() -> bool:
    """True in a trio task that its next await would end; asyncio ends tasks that suspend."""
    if "trio" not in sys.modules or not on_trio():
        return False
    import trio

    return trio.current_effective_deadline() == -math.inf


def on_trio() -> bool:
    """True inside a trio task; trio is not imported to find out."""
    if "trio" not in sys.modules:
        return False
    import trio

    return trio.lowlevel.in_trio_run()


def on_asyncio() -> bool:
    """True while a loop of asyncio runs on this thread; asyncio is not imported to find out."""
    if "asyncio" not in sys.modules:
        return False
    import asyncio

    return asyncio._get_running_loop() is not None


async def _until_trio(register: Register, on_cancel: Callable[[], None]) -> None:
    import outcome
    import trio

    try:
        await trio.lowlevel.checkpoint_if_cancelled()
    except BaseException:
        on_cancel()
        raise
    task = trio.lowlevel.current_task()
    token = trio.lowlevel.current_trio_token()
    find_waker = _thread.find_waker
    known = find_waker()
    if known is None or known.loop() is not token:
        find_waker = _thread.find_waker = _finder_of(token, _TrioWaker)
    del known
    is_waiting = True

    def resume() -> None:
        nonlocal is_waiting
        if is_waiting:
            is_waiting = False
            trio.lowlevel.reschedule(task, outcome.Value(None))

    def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
        nonlocal is_waiting
        is_waiting = False
        on_cancel()
        return trio.lowlevel.Abort.SUCCEEDED

    def wake() -> None:
        waker = find_waker()
        if waker is not None:
            waker.post(resume)

    try:
        register(wake)
    except BaseException:  # a refusal wakes, too; the task is elsewhere by then
        is_waiting = False
        raise
    await trio.lowlevel.wait_task_rescheduled(abort)


class LoopWaker:
    """The mailbox of one event loop. ``post`` may be called from any thread."""

    _eventfd: int | None = None
    """What wakes the loop, which keeps this waker as its reader until it is closed."""

    def __init__(self, loop: Any) -> None:
        self.loop = ref(loop)
        self._posted: deque[Callable[[], None]] = deque()
        self.tasks: dict[Any, Callable[[], None]] = {}
        """Those that it keeps, and what to call if it goes before they have ended."""
        self._is_awake = False

    def __del__(self) -> None:
        while self.tasks:
            _task, lose = self.tasks.popitem()
            lose()

    def post(self, call: Callable[[], None]) -> None:
        """Have the loop call this soon; dropped if the loop is closed."""
        self._posted.append(call)
        if not self._is_awake:
            self._is_awake = True
            loop = self.loop()
            try:
                if self._eventfd is not None and loop is not None and not loop.is_closed():
                    os.eventfd_write(self._eventfd, 1)  # open as long as this waker
                elif not self._wake():
                    self._is_awake = False
                    self._posted.clear()
            except BaseException:  # no memory: the next post is to wake it
                self._is_awake = False
                raise

    def _wake(self) -> bool:
        """Have a loop that reads no eventfd call ``_drain``; False if it is closed."""
        raise AssertionError("a waker knows how to wake its loop")

    def _drain(self) -> None:
        if self._eventfd is not None:
            try:
                os.eventfd_read(self._eventfd)
            except BlockingIOError:  # woken for nothing
                pass
        # The flag goes first: a post that comes while this drains wakes the loop again, or is seen.
        self._is_awake = False
        posted = self._posted
        try:
            while posted:
                call = posted.popleft()
                try:
                    call()
                except MemoryError:  # once more: none does more than its end leaves to do
                    call()
        finally:
            if posted:
                self.post(_nothing)  # those behind one that raises do not wait for the next


class _AsyncioWaker(LoopWaker):
    def __init__(self, loop: Any) -> None:
        super().__init__(loop)
        self._eventfd = _watched_eventfd(loop, self._drain)
        if self._eventfd is not None:
            finalize(self, os.close, self._eventfd).atexit = False

    def _wake(self) -> bool:
        loop = self.loop()
        if loop is None or loop.is_closed():
            return False
        try:
            loop.call_soon_threadsafe(self._drain)
        except RuntimeError:  # the loop was closed just now
            return False
        return True


def _watched_eventfd(loop: Any, read: Callable[[], None]) -> int | None:
    """Have the loop call this whenever the eventfd, which is the caller's, is written to.

    None where the system has no eventfd (left), or the loop watches none.
    """
    if not hasattr(os, "eventfd"):
        return None
    try:
        descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError:
        return None
    try:
        loop.add_reader(descriptor, read)
    except BaseException as refused:
        os.close(descriptor)
        if isinstance(refused, NotImplementedError | OSError):
            return None
        raise
    return descriptor


class _TrioWaker(LoopWaker):
    def _wake(self) -> bool:
        import trio

        token = self.loop()
        if token is None:
            return False
        try:
            token.run_sync_soon(self._drain, idempotent=True)
        except trio.RunFinishedError:
            return False
        return True


class _Process:
    """The wakers of this process's loops, by the address of the loop."""

    wakers: WeakValueDictionary[int, LoopWaker] = WeakValueDictionary()
    lock = threading.Lock()


FindWaker = Callable[[], LoopWaker | None]
"""Finds the mailbox of a loop, which holds it; None once the loop is gone."""


def _nothing() -> None:
    return None


class _Thread(threading.local):
    """How to find the waker of the loop that this thread ran last."""

    find_waker: FindWaker = staticmethod(_nothing)


_thread = _Thread()


def _renew_in_child() -> None:
    _Process.wakers, _Process.lock = WeakValueDictionary(), threading.Lock()
    _thread.find_waker = _nothing


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)


def _finder_of(loop: Any, make: Callable[[Any], LoopWaker]) -> FindWaker:
    with _Process.lock:
        waker = _Process.wakers.get(id(loop))
        if waker is None or waker.loop() is not loop:  # an address is used again
            waker = _Process.wakers[id(loop)] = make(loop)
    return partial(_same, waker) if waker._eventfd is None else ref(waker)


def _same(waker: LoopWaker) -> LoopWaker:
    return waker
