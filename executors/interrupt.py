"""Ctrl-C, held back where an interrupt would leave something half made."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Self

# The module signal spends microseconds of every run on making enums of what these give.
_get_handler, _set_handler = _signal.getsignal, _signal.signal

get_sigint_handler = partial(_get_handler, _signal.SIGINT)
"""Tells what handles SIGINT: ``default_int_handler`` raises, if it is called in the main thread."""
default_int_handler = _signal.default_int_handler
set_sigint_handler = partial(_set_handler, _signal.SIGINT)
"""Has SIGINT handled by something else; in the main thread only."""


class Interrupt:
    """Notes SIGINT; an impatient one raises KeyboardInterrupt at the second. A ``with`` block."""

    __slots__ = ("_before", "_is_impatient", "_tell", "has_come")

    def __init__(self, is_impatient: bool, tell: Callable[[], None] | None) -> None:
        self.has_come = False
        self._is_impatient, self._tell = is_impatient, tell
        self._before: Any = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.has_come and self._is_impatient:
            raise KeyboardInterrupt
        self.has_come = True
        if self._tell is not None:
            self._tell()

    def __enter__(self) -> Self:
        if can_interrupt():
            self._before = _set_handler(_signal.SIGINT, self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._before is not None:
            _set_handler(_signal.SIGINT, self._before)


def can_interrupt() -> bool:
    """True where SIGINT would raise KeyboardInterrupt: in the main thread, with Python's handler.

    Event loops that handle SIGINT themselves are not interrupted in the middle of a call.
    """
    return get_sigint_handler() is default_int_handler and is_main_thread()


def is_main_thread() -> bool:
    """True in the thread that SIGINT is raised in."""
    return threading.current_thread() is threading.main_thread()


def held_interrupt(
    *, is_impatient: bool = False, tell: Callable[[], None] | None = None
) -> Interrupt:
    """Hold SIGINT back while the block runs, where it would raise; the caller raises it after.

    ``is_impatient`` is for long blocks: there a second SIGINT raises at once. ``tell`` is called
    when it comes, amid whatever the thread does: it wakes the thread where that waits.
    """
    return Interrupt(is_impatient, tell)
