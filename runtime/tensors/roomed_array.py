"""RoomedArray: an array that knows the memory with room that it lies in."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

__all__ = ["RoomedArray", "new_room"]

Array = np.ndarray[Any, Any]

_LARGE_PAGE_BYTES = 2 << 20
"""Reading states of megabytes by small pages takes up to half as long again."""
_HUGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""None: the system has none to ask for."""


class RoomedArray(np.ndarray[Any, Any]):
    """A state that knows the memory with room that it lies in, and where it begins there.

    Views and copies of it know nothing: they begin elsewhere, or lie in other memory.
    """

    memory: Array | None = None
    start = 0


def new_room(size_bytes: int) -> Array:
    """Make memory, as bytes of any content, in large pages if there is much of it."""
    if size_bytes < 2 * _LARGE_PAGE_BYTES or _HUGE is None:
        return np.empty(size_bytes, np.uint8)
    memory = mmap.mmap(-1, size_bytes + _LARGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(_HUGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % _LARGE_PAGE_BYTES
    return np.frombuffer(memory, np.uint8, size_bytes, start)
