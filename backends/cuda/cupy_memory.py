"""Memory of a GPU, and pinned memory of the host."""

from __future__ import annotations

import numpy as np

from ..accelerator.queues.driver import Argument, Bytes, DriverError, ErrorKind
from .cupy_device import CupyDevice

__all__ = ["CupyHostMemory", "CupyMemory", "address_of"]


class CupyMemory:
    """A block of the device's memory, or a part of one, which has no memory of its own."""

    __slots__ = ("_owner", "address", "size_bytes")

    def __init__(self, address: int, size_bytes: int, owner: CupyDevice | None = None) -> None:
        self.address, self.size_bytes = address, size_bytes
        self._owner = owner

    @classmethod
    def allocated(cls, device: CupyDevice, size_bytes: int) -> CupyMemory:
        """Take a block of its own from the device, not from CuPy's pool, which gives none back."""
        size = max(1, size_bytes)
        return cls(device.on_device(device.runtime.malloc, size), size, device)

    def part(self, offset_bytes: int, size_bytes: int) -> CupyMemory:
        return CupyMemory(self.address + offset_bytes, max(1, size_bytes))

    def release(self) -> None:
        """Give the block back; the memory of a device that is lost has gone with it."""
        device, self._owner = self._owner, None
        if device is None:
            return
        try:
            device.on_device(device.runtime.free, self.address)
        except DriverError as error:
            if error.kind is not ErrorKind.LOST:
                raise


def address_of(memory: Argument) -> int:
    """Return where memory of this driver begins."""
    assert isinstance(memory, CupyMemory)
    return memory.address


class CupyHostMemory:
    """Pinned memory of the host. It goes back with the last array that sees it."""

    __slots__ = ("_device", "array")

    def __init__(self, device: CupyDevice, size_bytes: int) -> None:
        size, cuda = max(1, size_bytes), device.cuda
        self._device = device
        block = device.on_device(cuda.PinnedMemory, size)
        self.array: Bytes = np.frombuffer(cuda.PinnedMemoryPointer(block, 0), np.uint8, size)

    def release(self) -> None:
        self._device.on_device(self._release)

    def _release(self) -> None:
        self.array = np.empty(0, np.uint8)
