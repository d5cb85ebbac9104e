"""Memory of a driver that callers fill themselves, so that nothing copies it on the host."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from ..queues.opened_device import OpenedDevice

__all__ = ["LentMemory"]

Array = np.ndarray[Any, Any]


class LentMemory:
    """What one network has lent to callers as inputs. Thread-safe.

    It goes back with the last array that sees it, whenever that is.
    """

    def __init__(self, device: OpenedDevice) -> None:
        self._device = device
        self._lengths: dict[int, int] = {}
        """By address, in bytes."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Make an input of zeros that the device reads where it is, if its driver can lend it."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if not (self._device.facts.can_lend_host_memory and size_bytes):
            return np.zeros(shape, dtype)
        block = self._device.host_memory(size_bytes).array
        address = _address(block)
        self._lengths[address] = size_bytes
        weakref.finalize(block, self._lengths.pop, address, None).atexit = False
        block[:] = 0
        return block[:size_bytes].view(dtype).reshape(shape)

    @property
    def is_used(self) -> bool:
        """True while an array is there that was lent."""
        return bool(self._lengths)

    def has(self, array: Any) -> bool:
        """True for a whole array that was lent here, and for another that lies there just so."""
        return (
            bool(self._lengths)
            and isinstance(array, np.ndarray)
            and array.flags.c_contiguous
            and self._lengths.get(_address(array)) == array.nbytes
        )


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
