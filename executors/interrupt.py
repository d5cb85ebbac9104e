"""Ctrl-C, held back where an interrupt would leave something half made."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Notes the first SIGINT; a second one raises KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True


def can_interrupt() -> bool:
    """True where SIGINT would raise KeyboardInterrupt: in the main thread, with Python's handler.

    Event loops that handle SIGINT themselves are not interrupted in the middle of a call.
    """
    return (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )


@contextmanager
def held_interrupt() -> Iterator[Interrupt]:
    """Hold SIGINT back while the block runs, where it would raise; whoever uses it raises after."""
    interrupt = Interrupt()
    if not can_interrupt():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
