"""Constants on the device: uploaded once for a network, shared by all its slots and plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.graph import DType
from .driver import Bytes, Memory
from .opened_device import OpenedDevice
from .operand import Buffer

__all__ = ["WeightStore", "bytes_of"]

Array = np.ndarray[Any, Any]
_Key = tuple[str, DType, tuple[int, ...]]


class WeightStore:
    """The constants of one network. Thread-safe; ``upload`` blocks.

    Arrays are told apart by identity, so they are kept until ``forget_sources``.
    """

    def __init__(self, device: OpenedDevice, network: str) -> None:
        self._device, self._network = device, network
        self._lock = threading.Lock()
        self._buffers: dict[_Key, Buffer] = {}
        self._sources: dict[int, Array] = {}
        self._contents: dict[Buffer, Array] = {}
        self._memory: dict[Buffer, Memory] = {}

    @property
    def uploaded_bytes(self) -> int:
        """How much device memory the constants take."""
        return sum(memory.size_bytes for memory in self._memory.values())

    def constant(self, array: Array, dtype: DType) -> Buffer:
        """Name the buffer of an array, with its elements converted to ``dtype``."""
        return self.derived("", [array], dtype, lambda: array)

    def derived(
        self,
        operation: str,
        sources: Sequence[Array],
        dtype: DType,
        compute: Callable[[], Array],
    ) -> Buffer:
        """Name the buffer of what ``compute`` makes of constants of the model, made once.

        ``operation`` says in words what is done, with all its parameters.
        """
        key = (operation, dtype, tuple(id(source) for source in sources))
        with self._lock:
            if key not in self._buffers:
                made = np.require(compute().astype(dtype.numpy, copy=False), requirements=["C"])
                buffer = self._buffers[key] = Buffer("constant", made.nbytes)
                self._contents[buffer] = made
                self._sources.update({id(source): source for source in sources})
            return self._buffers[key]

    def missing(self, buffers: Iterable[Buffer]) -> list[Buffer]:
        """List those that are not on the device yet."""
        return [buffer for buffer in buffers if buffer not in self._memory]

    def upload(self, buffers: Iterable[Buffer]) -> None:
        """Bring constants to the device that are not there yet; raises DeviceError."""
        with self._lock:
            missing = self.missing(buffers)
            what = f"the weights of {self._network!r}"
            self._device.memory.check_room(what, [buffer.size_bytes for buffer in missing])
            copies = []
            for buffer in missing:
                memory = self._device.memory.buffer(buffer.size_bytes, what)
                self._memory[buffer] = memory
                if buffer.size_bytes:
                    copies.append((memory, bytes_of(self._contents[buffer])))
            self._device.write_now(copies)
            for buffer in missing:
                del self._contents[buffer]

    def forget_sources(self) -> None:
        """Let go of the model's arrays; for a network whose only plan is built and uploaded."""
        with self._lock:
            self._sources.clear()
            self._buffers.clear()

    def memory(self, buffer: Buffer) -> Memory:
        """Return the device memory of a constant that was uploaded."""
        return self._memory[buffer]

    def release(self) -> None:
        """Give the device memory back, when no run is left."""
        with self._lock:
            for memory in self._memory.values():
                self._device.memory.release(memory)
            self._memory.clear()


def bytes_of(array: Array) -> Bytes:
    """See a C-contiguous array as bytes, whatever its type and rank."""
    return array.reshape(-1).view(np.uint8)
