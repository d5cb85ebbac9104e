"""Memory of the fake driver: full of 0xFF until a command has written it, and once released."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unit.backends.accelerator.fake_launch_graph import FakeLaunchGraph

SPOILT = 0xFF
ALIGN_BYTES = 64


class FakeMemory:
    """Device memory, or a part of it."""

    def __init__(self, data: np.ndarray, base: FakeMemory | None = None) -> None:
        self.data, self.base = data, base
        self.is_released = False
        self.launch_graphs: weakref.WeakSet[FakeLaunchGraph] = weakref.WeakSet()
        """Those that have its address."""

    @property
    def size_bytes(self) -> int:
        return self.data.size

    def part(self, offset_bytes: int, size_bytes: int) -> FakeMemory:
        assert offset_bytes % ALIGN_BYTES == 0
        assert offset_bytes + size_bytes <= self.data.size
        return FakeMemory(self.data[offset_bytes : offset_bytes + size_bytes], self)

    def release(self) -> None:
        assert self.base is None
        assert not self.is_released
        assert not list(self.launch_graphs), "a launch graph has the address of freed memory"
        self.is_released = True
        self.data[:] = SPOILT

    def use(self) -> np.ndarray:
        owner = self.base or self
        assert not owner.is_released, "a command uses memory that was released"
        return self.data


class FakeHostMemory:
    """Memory of the host for copies."""

    def __init__(self, size_bytes: int) -> None:
        self.array = np.full(size_bytes, SPOILT, np.uint8)
        self.is_released = False

    def release(self) -> None:
        assert not self.is_released
        self.array, self.is_released = np.empty(0, np.uint8), True
