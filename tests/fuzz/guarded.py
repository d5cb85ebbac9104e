"""Memory that ends at a page which nobody may touch: who reads past it ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

__all__ = ["GuardedMemory"]

_PROT_NONE = 0


class GuardedMemory:
    """A few places between guarded pages, given out in turn; for one thread.

    An array is there until as many others have been placed as there are places.
    """

    def __init__(self, place_count: int = 32, place_bytes: int = 64 << 10) -> None:
        page = mmap.PAGESIZE
        self._place_bytes, self._stride = place_bytes, place_bytes + page
        self._memory = mmap.mmap(-1, page + place_count * self._stride)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._place_count, self._next = place_count, 0
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        start = self._bytes.ctypes.data
        for number in range(place_count + 1):
            address = ctypes.c_void_p(start + number * self._stride)
            if protect(address, ctypes.c_size_t(page), _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, array: Any, *, at_end: bool) -> Any:
        """Copy an array to just before a guarded page, or just behind one.

        What is too large or is no plain array is given back as it is.
        """
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            return array
        if not 0 < array.nbytes <= self._place_bytes:
            return array
        start = mmap.PAGESIZE + self._next * self._stride
        self._next = (self._next + 1) % self._place_count
        self._bytes[start : start + self._place_bytes] = 0xFE  # a huge number in any type
        if at_end:
            start += self._place_bytes - array.nbytes
        place = self._bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        place[...] = array
        return place
