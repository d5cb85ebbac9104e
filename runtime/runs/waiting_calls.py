"""What waits for a run to be answered, or to end: calls, each made by the thread that takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

__all__ = ["call_all", "take_call"]


def take_call(calls: Sequence[Callable[[], None]], call: Callable[[], None]) -> bool:
    """Take a call out of what waits; False: another thread has taken it, and calls it."""
    try:
        cast("list[Callable[[], None]]", calls).remove(call)
    except ValueError:
        return False
    return True


def call_all(calls: Sequence[Callable[[], None]]) -> None:
    """Take each call out and call it; a call that comes meanwhile is taken by its own thread.

    One that raises waits again, for the thread that goes through the end once more.
    """
    waiting = cast("list[Callable[[], None]]", calls)
    while waiting:
        try:
            call = waiting.pop(0)
        except IndexError:  # the last one was taken just now
            return
        try:
            call()
        except BaseException:
            waiting.insert(0, call)
            raise
