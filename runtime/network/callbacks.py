"""What may be a callback, and the loop that it is called on. Pure."""

from __future__ import annotations

from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

from ...errors import Place, PropertyError, placed
from ..loops.loop_call import is_loop

__all__ = ["check_callback", "is_asynchronous"]


def is_asynchronous(given: Any) -> bool:
    """True for a coroutine function or an asynchronous generator, and an object called as one."""
    call = type(given).__call__ if callable(given) else None
    return any(iscoroutinefunction(one) or isasyncgenfunction(one) for one in (given, call))


def check_callback(callback: Any, loop: Any, gets: str, where: Place) -> None:
    """Raise PropertyError for what cannot be called, or not where it is to be; None is none.

    ``gets`` says what it is called with; ``where`` is for the error.
    """
    key, value, problem = "callback", callback, ""
    if callback is not None and not callable(callback):
        problem = f"the callback is {type(callback).__name__}; give a function of {gets}, or None"
    elif isasyncgenfunction(callback):
        problem = "the callback is an asynchronous generator; give a function or coroutine function"
    elif loop is None:
        if is_asynchronous(callback):
            problem = (
                "the callback is a coroutine function, which an event loop has to run; call "
                "set_callback(callback, loop) with an asyncio event loop or a trio token"
            )
    elif not is_loop(loop):
        key, value = "loop", loop
        problem = (
            f"loop is {type(loop).__name__}; give an asyncio event loop "
            f"(asyncio.get_running_loop()), a trio token (trio.lowlevel.current_trio_token()), or "
            f"None for the network's callback thread"
        )
    elif _is_closed(loop):
        key, value, problem = "loop", loop, f"{loop!r} is closed; give one that runs, or None"
    if problem:
        with placed(**where):
            raise PropertyError(problem, key, value=value)


def _is_closed(loop: Any) -> bool:
    import asyncio

    return isinstance(loop, asyncio.AbstractEventLoop) and loop.is_closed()
