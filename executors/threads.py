"""What a thread knows about itself: the hops it still has to do, and whether it is one of ours.

A thread inside a hop must not block on another run: what it waits for may be queued behind that
very hop. So blocking calls are refused there as they are on our own threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ..errors import RequestStateError

T = TypeVar("T")


_Hop = tuple[Callable[..., Any], tuple[Any, ...]]


class _ThreadState(threading.local):
    """What each thread knows about itself."""

    hops: deque[_Hop] | None = None
    is_own = False


_thread = _ThreadState()


def hop(function: Callable[..., None], *args: Any) -> None:
    """Call it on this thread, after the hop that is running, so that hand-overs never nest.

    The function must not raise; if it does all the same (an interrupt), the hops that wait behind
    it still run, and then it is raised from the outermost call.
    """
    hops = _thread.hops
    if hops is not None:
        hops.append((function, args))
        return
    hops = _thread.hops = deque()
    try:
        function(*args)
        while hops:
            following, args = hops.popleft()
            following(*args)
    except BaseException:
        _call_all(hops)
        raise
    finally:
        _thread.hops = None


def hop_now(function: Callable[..., T], *args: Any) -> T | None:
    """Call it on this thread as a hop, and return its result; None where it would have to wait.

    That is inside another hop, and on aioinfer's own threads. The function must not raise.
    """
    if _thread.hops is not None or _thread.is_own:
        return None
    hops = _thread.hops = deque()
    try:
        result = function(*args)
        while hops:
            following, args = hops.popleft()
            following(*args)
    except BaseException:
        _call_all(hops)
        raise
    finally:
        _thread.hops = None
    return result


def _call_all(hops: deque[_Hop]) -> None:
    """Call them, whatever they raise: an earlier error is on its way."""
    while hops:
        following, args = hops.popleft()
        with suppress(BaseException):
            following(*args)


def mark_own_thread() -> None:
    """Mark this thread as aioinfer's: calls that would wait for it refuse on it."""
    _thread.is_own = True


def is_own_thread() -> bool:
    """True on a thread of aioinfer's executors, timers and completions."""
    return _thread.is_own


def must_not_block() -> bool:
    """True where waiting for a run could be waiting for the thread one stands on.

    That is on aioinfer's own threads, and on any thread inside a stage or a callback that runs
    inline, because the rest of that hand-over waits for it to return.
    """
    return _thread.is_own or _thread.hops is not None


def refuse_own_thread(call: str) -> None:
    """Raise RequestStateError where a blocking call could wait for itself; see must_not_block."""
    if not must_not_block():
        return
    thread = threading.current_thread().name
    place = "one of aioinfer's own threads" if _thread.is_own else "inside a stage or callback"
    raise RequestStateError(
        f"{call} would block {thread!r}, {place}, and could wait for itself; call it from a "
        f"thread of yours, or use the non-blocking form (start_async, set_callback, await)"
    )
