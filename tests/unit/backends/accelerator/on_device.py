"""Arrays that a caller has in the fake driver's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from unit.backends.accelerator.fake_driver import FakeContext, ManualEvent

__all__ = ["OnDevice"]


class OnDevice:
    """A caller's array in a fake device's memory, which a queue of the caller's fills later."""

    def __init__(self, context: FakeContext, content: np.ndarray, is_writable: bool = True) -> None:
        self.context, self.is_writable = context, is_writable
        self.shape, self.dtype = content.shape, content.dtype
        self.memory = context.buffer(max(1, content.nbytes))
        self._queue = context.queue("caller")
        self._content = np.ascontiguousarray(content)
        self.fill(content)

    def fill(self, content: np.ndarray) -> None:
        """Enqueue other content on the caller's queue."""
        self._queue.write(self.memory, np.ascontiguousarray(content).reshape(-1).view(np.uint8))

    def enqueued(self) -> ManualEvent:
        """Give the end of what the caller has enqueued so far."""
        return self._queue.marker([])

    def content(self) -> np.ndarray:
        """Read it, whatever is enqueued."""
        size_bytes = self._content.nbytes
        return self.memory.use()[:size_bytes].view(self.dtype).reshape(self.shape).copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("its memory is the device's")
