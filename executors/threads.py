"""What a thread knows about itself: the hops it still has to do, and whether it is one of ours.

A thread inside a hop must not block on another run: what it waits for may be queued behind that
very hop. So blocking calls are refused there as they are on our own threads.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, Unpack, runtime_checkable

from ..errors import Place, RequestStateError

_log = logging.getLogger("aioinfer")

_TELLS = (False, False, False, True)
"""How often an owner is told that finds no memory for hearing it; whether that is the last time."""

_Hop = tuple[Callable[..., Any], tuple[Any, ...]]


@runtime_checkable
class HopOwner(Protocol):
    """An object whose methods are hopped, and that has to know if one could not be called."""

    def hop_failed(self, error: BaseException) -> None:
        """Have no thread wait for what was to be done."""


class ThreadState:
    """What one thread knows about itself; written by that thread alone."""

    __slots__ = ("hops", "is_hopping", "is_own")

    def __init__(self) -> None:
        self.hops: deque[_Hop] = deque()
        """What it has to do after the hop that is running."""
        self.is_hopping = False
        self.is_own = False
        """True on a thread of aioinfer's executors, timers and completions."""

    def end_hop(self) -> None:
        """Do all hops that wait behind the one that ends here."""
        hops = self.hops
        function: Callable[..., Any] | None = None
        try:
            while hops:
                function, args = hops.popleft()
                function(*args)
        except BaseException as error:
            if function is not None:
                tell_owner(function, args, error)
            _call_all(hops)
            raise
        finally:
            self.is_hopping = False


class _Threads(threading.local):
    """Makes a state for each thread that asks."""

    def __init__(self) -> None:
        self.state = ThreadState()


_threads = _Threads()


def this_thread() -> ThreadState:
    """Return the state of the calling thread."""
    return _threads.state


def hop(function: Callable[..., None], *args: Any) -> None:
    """Call it on this thread, after the hop that is running, so that hand-overs never nest.

    The function must not raise; if it does all the same (an interrupt), the hops that wait behind
    it still run, and then it is raised from the outermost call. Of one that has waited the caller
    knows nothing any more: if it is a method of an object that has ``hop_failed``, that is called
    with the error (``tell_owner``).
    """
    thread = _threads.state
    hops = thread.hops
    if thread.is_hopping:
        hops.append((function, args))
        return
    thread.is_hopping = True
    following: Callable[..., None] | None = None
    try:
        function(*args)
        while hops:
            following, args = hops.popleft()
            following(*args)
    except BaseException as error:
        if following is not None:
            tell_owner(following, args, error)
        _call_all(hops)
        raise
    finally:
        thread.is_hopping = False


def hand_over(function: Callable[..., None], *args: Any) -> None:
    """Call it as ``hop`` does, for a caller that does not look at it again.

    What it raises goes to the object whose method it is, as of one that has waited; only interrupts
    come out.
    """
    thread = _threads.state
    hops = thread.hops
    if thread.is_hopping:
        hops.append((function, args))
        return
    thread.is_hopping = True
    following = function
    try:
        function(*args)
        while hops:
            following, args = hops.popleft()
            following(*args)
    except BaseException as error:
        tell_owner(following, args, error)
        _call_all(hops)
        if not isinstance(error, Exception):
            raise
    finally:
        thread.is_hopping = False


def _call_all(hops: deque[_Hop]) -> None:
    """Call them, whatever they raise: an earlier error is on its way."""
    while hops:
        following, args = hops.popleft()
        try:
            following(*args)
        except BaseException as error:
            tell_owner(following, args, error)


def tell_owner(function: Callable[..., Any], args: tuple[Any, ...], error: BaseException) -> None:
    """Tell the object whose method has failed, on its own, so that nothing waits for it.

    Where the method was to get a token first, the object hears of it when that has fired: until
    then a device works for it.
    """
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, HopOwner):
        _log.error("%r raised; what it was to end may never settle", function, exc_info=error)
        return
    failed = owner.hop_failed
    for is_last in _TELLS:
        try:
            when_ready = getattr(args[0], "when_ready", None) if args else None
            if when_ready is None:
                failed(error)
            else:
                when_ready(lambda _: failed(error))
        except MemoryError:  # the end may be gone through again, and goes on where it failed
            if not is_last:
                continue
            _log.exception("%r could not be told that %r failed", owner, function)
        except BaseException:
            _log.exception("%r could not be told that %r failed", owner, function)
        return


def mark_own_thread() -> None:
    """Mark this thread as aioinfer's: calls that would wait for it refuse on it."""
    _threads.state.is_own = True


def is_own_thread() -> bool:
    """True on a thread of aioinfer's executors, timers and completions."""
    return _threads.state.is_own


def must_not_block() -> bool:
    """True where waiting for a run could be waiting for the thread one stands on.

    That is on aioinfer's own threads, and on any thread inside a stage or a callback that runs
    inline, because the rest of that hand-over waits for it to return.
    """
    thread = _threads.state
    return thread.is_own or thread.is_hopping


def refuse_own_thread(
    call: str, *, request_id: int | None = None, state: str = "", **where: Unpack[Place]
) -> None:
    """Raise RequestStateError where a blocking call could wait for itself; see must_not_block.

    The rest is what the error is to say of the object that was called.
    """
    if not must_not_block():
        return
    thread = threading.current_thread().name
    place = "one of aioinfer's own threads" if is_own_thread() else "inside a stage or callback"
    raise RequestStateError(
        f"{call} would block {thread!r}, {place}, and could wait for itself; call it from a "
        f"thread of yours, or use the non-blocking form (start_async, set_callback, await)",
        request_id=request_id,
        state=state,
        **where,
    )
