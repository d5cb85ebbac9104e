"""The scratch memory of one stream, which grows without giving up the pages that it has.

New memory costs a fault for each page when it is first written: for a network of convolutions some
thousands, which take as long as making its plan. So a mapping has room beyond what is asked for,
which costs nothing until it is written, and beyond that it is made longer, and moved if it has to
be, with the pages that it has. That needs that no array refers to it any more; where one still
does, as those of another network's programs, memory is had anew, and the old one goes with them.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from ..onednn.bindings import aligned_bytes

__all__ = ["GrowingArena"]

Array = np.ndarray[Any, Any]

_LEAST_BYTES = 32 << 20  # of a mapping; what is not written takes address space alone


class GrowingArena:
    """Memory at a multiple of 64 bytes, whose content means nothing between runs.

    Touched by the thread of its stream alone. Holders of ``memory`` or of its arrays keep it.
    """

    __slots__ = ("__weakref__", "_pages", "memory", "used_bytes")

    def __init__(self) -> None:
        self.memory: Array = aligned_bytes(0)
        self.used_bytes = 0
        """The most that was asked for."""
        self._pages: mmap.mmap | None = None

    def reserve(self, size_bytes: int) -> None:
        """Have ``memory`` be at least that long: another array if it is not; raises MemoryError.

        The caller holds nothing of the memory where it is to keep its pages.
        """
        if size_bytes > self.memory.nbytes:
            self.memory = aligned_bytes(0)
            try:
                self._map(max(size_bytes + size_bytes // 2, _LEAST_BYTES))
            except MemoryError:
                self._map(size_bytes)
        self.used_bytes = max(self.used_bytes, size_bytes)

    def _map(self, size_bytes: int) -> None:
        pages = self._pages
        if pages is None or not _has_resized(pages, size_bytes):
            self._pages = pages = None
            if not hasattr(mmap, "MAP_PRIVATE"):
                self.memory = aligned_bytes(size_bytes)
                return
            try:
                pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise MemoryError(f"{size_bytes >> 20} MiB to compute in: {error}") from error
            self._pages = pages
        self.memory = np.frombuffer(pages, np.uint8)


def _has_resized(pages: mmap.mmap, size_bytes: int) -> bool:
    """Make a mapping longer; False where something refers to it, or the system cannot."""
    try:
        pages.resize(size_bytes)
    except (BufferError, OSError, SystemError, ValueError):
        return False
    return True
