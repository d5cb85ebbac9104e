"""Memory for large results: it comes back when the caller's last view of it is gone.

Theory of operation. A fresh array of some megabytes costs a page fault for every 4 KiB, which takes
longer than to write it. So large results lie in blocks that are handed out again. An array of a
block has a lease as its base, and every view of the array keeps the lease; when the last of them is
gone the interpreter finalises the lease, on whichever thread that is, and the block is free. The
pool looks at no reference counts, so whatever holds a view, numpy, a memoryview or DLPack, keeps
the block.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

__all__ = ["POOLED_BYTES", "OutputPool"]

Array = np.ndarray[Any, Any]

POOLED_BYTES = 256 * 1024  # below this the allocator keeps what is freed, and a lease costs more


class _Lease:
    """Lends a block of a pool; made the base of an array, it lives as long as any view of that."""

    __slots__ = ("__array_interface__", "_block", "_free")

    def __init__(self, block: Array, size_bytes: int, free: deque[Array]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = {**block.__array_interface__, "shape": (size_bytes,)}

    def __del__(self) -> None:
        self._free.append(self._block)


class OutputPool:
    """Blocks of memory for the results of one network. Thread-safe.

    ``most_free`` blocks are kept at most while no array uses them, of whatever sizes; the one that
    has been free for longest goes first.
    """

    def __init__(self, most_free: int) -> None:
        self._free: deque[Array] = deque(maxlen=most_free)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Make an array, content undefined, of the caller's own until its last view is gone."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes < POOLED_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        block = self._take(size_bytes)
        if block is None:
            block = np.empty(size_bytes, np.uint8)
        return np.asarray(_Lease(block, size_bytes, self._free)).view(dtype).reshape(shape)

    def _take(self, size_bytes: int) -> Array | None:
        """Take a free block of this size. Each step is atomic: leases end at any moment."""
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:
                return None
            if block.nbytes == size_bytes:
                return block
            self._free.append(block)
        return None
