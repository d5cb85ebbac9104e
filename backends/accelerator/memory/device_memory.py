"""The memory of one device: what this process has taken, and a refusal before it is too much."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ....errors import DeviceError
from ..queues.device_health import DeviceHealth
from ..queues.driver import Context, DriverError, Memory

__all__ = ["DeviceMemory"]


class LentBlock(Protocol):
    """Memory that callers hold."""

    def take_back(self) -> Memory | None:
        """Take it from what still holds it, if it can be taken; the caller frees it."""


class DeviceMemory:
    """Buffers of one device, counted. Thread-safe."""

    def __init__(self, device: str, context: Context, health: DeviceHealth) -> None:
        self._device, self._context, self._health = device, context, health
        # A finaliser that gives memory back may run on the thread that has the lock.
        self._lock = threading.RLock()
        self.taken_bytes = 0
        """The buffers that are alive, together."""
        self._lent: dict[int, weakref.ref[LentBlock]] = {}

    def check_room(self, what: str, sizes: list[int]) -> None:
        """Raise DeviceError if buffers of these sizes cannot be made; makes none."""
        facts, needed = self._context.facts, sum(sizes)
        largest = max(sizes, default=0)
        if largest > facts.largest_buffer_bytes:
            raise DeviceError(
                f"{what} needs one buffer of {_mib(largest)} MiB, and {self._device} makes none "
                f"above {facts.largest_buffer_bytes >> 20} MiB; use smaller inputs, or run a part "
                f"of the model on another device (HETERO's AFFINITY)",
                resource="memory",
                needed_bytes=largest,
                limit_bytes=facts.largest_buffer_bytes,
                device=self._device,
            )
        if self.taken_bytes + needed > facts.memory_bytes:
            raise DeviceError(
                f"{what} needs {_mib(needed)} MiB on {self._device}, which has "
                f"{facts.memory_bytes >> 20} MiB, {_mib(self.taken_bytes)} MiB of them taken; "
                f"close other networks, or use smaller inputs or another device",
                resource="memory",
                needed_bytes=needed,
                limit_bytes=facts.memory_bytes - self.taken_bytes,
                device=self._device,
            )

    def buffer(self, size_bytes: int, what: str) -> Memory:
        """Make a buffer; raises DeviceError where there is no room, naming ``what`` it is for."""
        with self._lock:
            self.check_room(what, [size_bytes])
            try:
                memory = self._context.buffer(size_bytes)
            except DriverError as error:
                raise self._health.translate(error, f"taking memory for {what}") from error
            self.taken_bytes += memory.size_bytes
        return memory

    def release(self, memory: Memory) -> None:
        """Give a buffer back that no command uses any more."""
        with self._lock:
            self.taken_bytes -= memory.size_bytes
        memory.release()

    def lend(self, block: LentBlock) -> None:
        """Note a block that callers hold, to be taken back when the device is closed."""
        key = id(block)

        def forget(_dead: object) -> None:
            self._lent.pop(key, None)

        self._lent[key] = weakref.ref(block, forget)

    def take_back_lent(self) -> None:
        """Free all that callers still hold and that can be taken from them."""
        for reference in list(self._lent.values()):
            block = reference()
            memory = None if block is None else block.take_back()
            if memory is not None:
                self.release(memory)


def _mib(size_bytes: int) -> int:
    """Round up, so that what does not fit looks as if it does not."""
    return -(-size_bytes >> 20)
