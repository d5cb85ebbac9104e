"""Memory for the contents of large constants: few, large pages, given back as soon as they can be.

Theory of operation. A model's weights are many arrays of some megabytes. One page fault for each
4 KiB costs more than reading the file, and the allocator keeps what is freed between them. Arrays
are cut from slabs of pages of their own, which Linux is asked to make huge; a slab goes back to the
system when the last array in it is gone.
"""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np

__all__ = ["SMALL_BYTES", "Slabs"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SMALL_BYTES = 64 * 1024  # below this the allocator does as well
SLAB_BYTES = 32 << 20  # what is kept at worst for one small array; 16 huge pages
HUGE_PAGE_BYTES = 2 << 20
ALIGN_BYTES = 64  # a cache line, and the widest vector register of a CPU


class Slabs:
    """Hands out memory for arrays that live about as long as each other. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slab: Bytes = np.empty(0, np.uint8)
        self._used_bytes = 0

    def empty(self, size_bytes: int) -> Bytes:
        """Make a vector of bytes at a multiple of 64, content undefined, writeable.

        Its memory is freed with the last array of its slab. Raises MemoryError.
        """
        if size_bytes < SMALL_BYTES:
            raw = np.empty(size_bytes + ALIGN_BYTES, np.uint8)
            return _aligned(raw, ALIGN_BYTES)[:size_bytes]
        with self._lock:
            if self._used_bytes + size_bytes > self._slab.size:
                self._slab = _new_slab(max(size_bytes, SLAB_BYTES))
                self._used_bytes = 0
            start = self._used_bytes
            self._used_bytes += -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
            return self._slab[start : start + size_bytes]

    def seal(self) -> None:
        """Hand out nothing more of the slab that is in use, so that it can go with its arrays."""
        with self._lock:
            self._slab, self._used_bytes = np.empty(0, np.uint8), 0


def _new_slab(size_bytes: int) -> Bytes:
    length = size_bytes + HUGE_PAGE_BYTES
    try:
        if not hasattr(mmap, "MAP_PRIVATE"):
            return np.empty(length, np.uint8)
        pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{length >> 20} MiB for constants cannot be had: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            pages.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without huge pages
            pass
    return _aligned(np.frombuffer(pages, np.uint8), HUGE_PAGE_BYTES)[:size_bytes]


def _aligned(memory: Bytes, align_bytes: int) -> Bytes:
    return memory[-memory.ctypes.data % align_bytes :]
