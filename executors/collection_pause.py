"""No full garbage collection while a network is loaded, or a plan of one is made.

That makes a hundred thousand objects and drops most of them again. Python's collector takes that
for a reason to look at every object of the process, again and again, for tens of milliseconds each
time and with the interpreter's lock: an event loop beside it stands still, and next to nothing is
found. So the oldest generation waits until that is over; the young ones are collected as ever. The
collector belongs to the process: its thresholds come back unless other code has set others
meanwhile.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["full_collections_paused"]

_NEVER = (1 << 31) - 1


class _Pause:
    """How many blocks ask for it, and the thresholds before the first one."""

    lock = threading.Lock()
    count = 0
    before = (0, 0, 0)


@contextmanager
def full_collections_paused() -> Iterator[None]:
    """Pause full collections in the block; any number of threads may be in one."""
    with _Pause.lock:
        if _Pause.count == 0:
            _Pause.before = gc.get_threshold()
            gc.set_threshold(*_paused())
        _Pause.count += 1
    try:
        yield
    finally:
        with _Pause.lock:
            _Pause.count -= 1
            if _Pause.count == 0:
                _resume()


def _paused() -> tuple[int, int, int]:
    return (*_Pause.before[:2], _NEVER)


def _resume() -> None:
    if gc.get_threshold() == _paused():
        gc.set_threshold(*_Pause.before)


def _resume_in_child() -> None:
    _Pause.lock = threading.Lock()
    if _Pause.count:
        _Pause.count = 0
        _resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)
