"""Memory for the contents of large constants, given back as soon as it can be.

A model's weights are many arrays of some megabytes, and the allocator keeps what is freed between
others that stay. So they are cut from slabs, mappings of their own, which go back to the system
with the last array in them. The system is not asked for huge pages: on virtual machines whose hosts
take free ones back, each comes at the price of hundreds of small ones, and inference was 1 to 2 %
faster with them. It is asked for the pages of an array at once, as who takes one is about to fill
it, unless that is so large that several threads would fill it: they bring more pages than one call.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading
from typing import Any

import numpy as np

__all__ = ["ONE_THREAD_BYTES", "SMALL_BYTES", "Slabs"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SMALL_BYTES = 64 * 1024  # below this the allocator does as well
SLAB_BYTES = 32 << 20  # what is kept at worst for one small array
ALIGN_BYTES = 64  # a cache line, and the widest vector register of a CPU
ONE_THREAD_BYTES = 4 << 20
"""Of an array that one thread fills about as soon as several would."""

_MADV_POPULATE_WRITE = 23  # of Linux 5.14


class Slabs:
    """Hands out memory for arrays that live about as long as each other. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slab: Bytes = np.empty(0, np.uint8)
        self._pages: mmap.mmap | None = None
        """That the slab lies in, where the system has mappings."""
        self._used_bytes = 0

    def release(self) -> None:
        """Hold no slab for the next array; the arrays keep theirs."""
        with self._lock:
            self._slab, self._pages, self._used_bytes = np.empty(0, np.uint8), None, 0

    def empty(self, size_bytes: int) -> Bytes:
        """Make a vector of bytes at a multiple of 64, content undefined, writeable.

        Its memory is freed with the last array of its slab. Raises MemoryError.
        """
        if size_bytes < SMALL_BYTES:
            raw = np.empty(size_bytes + ALIGN_BYTES, np.uint8)
            return _aligned(raw, ALIGN_BYTES)[:size_bytes]
        with self._lock:
            if self._used_bytes + size_bytes > self._slab.size:
                self._slab, self._pages = _new_slab(max(size_bytes, SLAB_BYTES))
                self._used_bytes = 0
            slab, pages, start = self._slab, self._pages, self._used_bytes
            self._used_bytes += -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
        if pages is not None and size_bytes <= ONE_THREAD_BYTES:
            _bring(pages, start, start + size_bytes)
        return slab[start : start + size_bytes]


def _new_slab(size_bytes: int) -> tuple[Bytes, mmap.mmap | None]:
    try:
        if not hasattr(mmap, "MAP_PRIVATE"):
            return _aligned(np.empty(size_bytes + ALIGN_BYTES, np.uint8), ALIGN_BYTES), None
        pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size_bytes >> 20} MiB for constants cannot be had: {error}") from error
    return np.frombuffer(pages, np.uint8), pages


def _bring(pages: mmap.mmap, start: int, end: int) -> None:
    """Have what lies there in memory, where the system can do that; else each touch brings it."""
    if sys.platform != "linux":
        return
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        pages.madvise(_MADV_POPULATE_WRITE, first, end - first)


def _aligned(memory: Bytes, align_bytes: int) -> Bytes:
    return memory[-memory.ctypes.data % align_bytes :]
