"""No full garbage collection while a network is loaded.

Theory of operation. A load makes a hundred thousand objects and drops most of them again. Python's
collector takes that for a reason to look at every object of the process, again and again, for tens
of milliseconds each time and with the interpreter's lock: an event loop beside it stands still, and
next to nothing is found. So the oldest generation waits until no network is being loaded; the young
ones are collected as ever. The collector belongs to the process: its thresholds come back unless
other code has set others meanwhile.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["full_collections_held"]

_NEVER = (1 << 31) - 1


class _Hold:
    """How many ask for it, and what the thresholds were before the first did."""

    lock = threading.Lock()
    count = 0
    before = (0, 0, 0)


@contextmanager
def full_collections_held() -> Iterator[None]:
    """Hold full collections back in the block; any number of threads may be in one."""
    with _Hold.lock:
        if _Hold.count == 0:
            _Hold.before = gc.get_threshold()
            gc.set_threshold(*_held())
        _Hold.count += 1
    try:
        yield
    finally:
        with _Hold.lock:
            _Hold.count -= 1
            if _Hold.count == 0:
                _let_go()


def _held() -> tuple[int, int, int]:
    return (*_Hold.before[:2], _NEVER)


def _let_go() -> None:
    if gc.get_threshold() == _held():
        gc.set_threshold(*_Hold.before)


def _let_go_in_child() -> None:
    _Hold.lock = threading.Lock()
    if _Hold.count:
        _Hold.count = 0
        _let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
