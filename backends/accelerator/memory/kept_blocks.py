"""Device memory of outputs that stay: it comes back when the caller's last hold on it is gone.

Theory of operation. A block is lent to one run, which writes it, then to its caller, and to any run
that reads it: each user holds it. When none is left, the interpreter finalises it, on any
thread, and its memory goes to the pool of its network, for the next run. There it may be written at
once: its last user had seen the last use of it end. That is not so of a library that had the
memory by DLPack, whose own queues may still read; such memory goes back to the driver, which waits
for them. So does what comes back when the pool is full, and once the network is closed.

A device that is closed takes back at once what callers still hold, but for what was exported, which
others may use. Each block's memory is popped from a list of one, so that two that take it back at
the same time never both have it. A finaliser may run amid any of this, so no lock is held here.
"""

from __future__ import annotations

from collections import deque

from ....errors import ClosedError
from ..queues.driver import Memory
from .device_memory import DeviceMemory

__all__ = ["KeptBlock", "KeptBlocks"]


class KeptBlock:
    """Memory of a device, lent out for as long as this is held."""

    __slots__ = ("__weakref__", "_held", "_pool", "is_exported")

    def __init__(self, memory: Memory, pool: KeptBlocks) -> None:
        self._held, self._pool = [memory], pool
        self.is_exported = False
        """Others may use it, whom only the driver knows; set before the memory is asked for."""

    @property
    def memory(self) -> Memory:
        """The memory; raises ClosedError if the device has taken it back."""
        try:
            return self._held[0]
        except IndexError:
            raise ClosedError(
                f"{self._pool.what} is gone: its Core was closed, and the device has taken the "
                f"memory back; read it before"
            ) from None

    def take_back(self) -> Memory | None:
        """Take the memory from what still holds it, if it can be taken; the caller frees it."""
        try:
            memory = self._held.pop()
        except IndexError:
            return None
        if self.is_exported:  # looked at behind the pop, and written before memory is asked for
            self._held.append(memory)
            return None
        return memory

    def __del__(self) -> None:
        if self._held:
            try:
                memory = self._held.pop()
            except IndexError:
                return
            self._pool.put(memory, was_exported=self.is_exported)


class KeptBlocks:
    """The blocks of one network's outputs. Thread-safe; ``what`` names them in errors.

    ``most_free`` of them are kept while unused; the one that has been free for longest
    goes first.
    """

    def __init__(self, memory: DeviceMemory, what: str, most_free: int) -> None:
        self.what = what
        self._memory, self._most_free = memory, most_free
        self._free: deque[Memory] = deque()
        self._is_closed = False

    def take(self, size_bytes: int) -> KeptBlock | None:
        """Lend a free block of at least this size; None if there is none. Never blocks."""
        wanted, free = _rounded(size_bytes), self._free
        for _ in range(len(free)):
            try:
                memory = free.popleft()
            except IndexError:
                return None
            if memory.size_bytes == wanted:
                return self._lent(memory)
            free.append(memory)
        return None

    def make(self, size_bytes: int) -> KeptBlock:
        """Lend a new block of at least this size. Blocks a little; raises DeviceError."""
        return self._lent(self._memory.buffer(_rounded(size_bytes), self.what))

    def put(self, memory: Memory, *, was_exported: bool = False) -> None:
        """Take unused memory back. Any thread; blocks only where the driver has to."""
        if was_exported:
            self._memory.release(memory)
            return
        self._free.append(memory)
        self._give_back(0 if self._is_closed else self._most_free)

    def close(self) -> None:
        """Give back what is free, and later what comes back, each at once."""
        self._is_closed = True
        self._give_back(0)

    def _lent(self, memory: Memory) -> KeptBlock:
        block = KeptBlock(memory, self)
        self._memory.lend(block)
        return block

    def _give_back(self, most_free: int) -> None:
        while len(self._free) > most_free:
            try:
                memory = self._free.popleft()
            except IndexError:
                return
            self._memory.release(memory)


def _rounded(size_bytes: int) -> int:
    """Round up to one of eight sizes to a power of two, so that lengths that grow share blocks."""
    step = 1 << max(8, (size_bytes - 1).bit_length() - 3 if size_bytes > 1 else 0)
    return max(1, -(-size_bytes // step)) * step
