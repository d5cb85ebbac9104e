"""Constants on the device: uploaded once for a network, shared by all its slots and plans.

What is made for a plan, such as a folded array or a table for its shapes, stays as long as plans
use it: the compiler says between two plans which constants are still in use, and the others are
given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.graph import DType
from ..operand import Buffer
from ..queues.driver import Bytes, Memory
from ..queues.opened_device import OpenedDevice

__all__ = ["WeightStore", "bytes_of"]

Array = np.ndarray[Any, Any]
_Key = tuple[str, DType, tuple[int, ...]]
_Named = tuple[Buffer, tuple[Array, ...]]
"""A constant, and the arrays that it is made of, kept so that no other has their identity."""

_AS_IT_IS = ""  # the operation of an array that is uploaded itself


class WeightStore:
    """The constants of one network. Thread-safe; ``upload`` blocks.

    Arrays are told apart by identity, so they are kept until ``forget_sources``, or as long as
    their constant. ``lasting`` are the model's own arrays. What is on the device is replaced as a
    whole and never changed, so that it is read without the lock.
    """

    def __init__(self, device: OpenedDevice, network: str, lasting: Collection[Array] = ()) -> None:
        self._device, self._network = device, network
        self._lock = threading.Lock()
        self._lasting = frozenset([id(array) for array in lasting])
        self._named: dict[_Key, _Named] = {}
        self._contents: dict[Buffer, Array] = {}
        self._memory: Mapping[Buffer, Memory] = {}

    @property
    def uploaded_bytes(self) -> int:
        """How much device memory the constants take."""
        return sum(memory.size_bytes for memory in self._memory.values())

    def constant(self, array: Array, dtype: DType) -> Buffer:
        """Name the buffer of an array, with its elements converted to ``dtype``."""
        return self.derived(_AS_IT_IS, [array], dtype, lambda: array)

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
            if key not in self._named:
                made = np.require(compute().astype(dtype.numpy, copy=False), requirements=["C"])
                buffer = Buffer("constant", made.nbytes)
                self._named[key] = buffer, tuple(sources)
                self._contents[buffer] = made
            return self._named[key][0]

    def missing(self, buffers: Iterable[Buffer]) -> list[Buffer]:
        """List those that are not on the device yet."""
        return [buffer for buffer in buffers if buffer not in self._memory]

    def upload(self, buffers: Iterable[Buffer]) -> None:
        """Bring constants to the device that are not there yet: all of them, or none.

        Raises DeviceError; then they can be uploaded later.
        """
        with self._lock:
            missing = self.missing(buffers)
            what = f"the weights of {self._network!r}"
            self._device.memory.check_room(what, [buffer.size_bytes for buffer in missing])
            made: dict[Buffer, Memory] = {}
            try:
                for buffer in missing:
                    made[buffer] = self._device.memory.buffer(buffer.size_bytes, what)
                self._device.write_now(
                    (memory, bytes_of(self._contents[buffer]))
                    for buffer, memory in made.items()
                    if buffer.size_bytes
                )
            except BaseException:
                for memory in made.values():
                    self._device.memory.release(memory)
                raise
            self._memory = {**self._memory, **made}
            for buffer in missing:
                del self._contents[buffer]

    def keep_only(self, used: Iterable[Buffer]) -> None:
        """Give back what is neither among these nor an array of the model itself.

        Not while a plan is being built, and when no run uses the others any more. Blocks a little.
        """
        with self._lock:
            kept = set(used)
            kept.update(buffer for key, (buffer, _) in self._named.items() if self._is_lasting(key))
            self._named = {key: named for key, named in self._named.items() if named[0] in kept}
            self._contents = {key: item for key, item in self._contents.items() if key in kept}
            others = [item for buffer, item in self._memory.items() if buffer not in kept]
            self._memory = {key: item for key, item in self._memory.items() if key in kept}
            for memory in others:
                self._device.memory.release(memory)

    def forget_sources(self) -> None:
        """Release the model's arrays; for a network whose only plan is built and uploaded."""
        with self._lock:
            self._lasting = frozenset()
            self._named.clear()

    def memory(self, buffer: Buffer) -> Memory:
        """Return the device memory of a constant that was uploaded."""
        return self._memory[buffer]

    def release(self) -> None:
        """Give the device memory back, and what was not uploaded, when no run is left."""
        with self._lock:
            taken, self._memory = self._memory, {}
            self._contents.clear()
            for memory in taken.values():
                self._device.memory.release(memory)

    def _is_lasting(self, key: _Key) -> bool:
        operation, _, sources = key
        return operation == _AS_IT_IS and self._lasting.issuperset(sources)


def bytes_of(array: Array) -> Bytes:
    """See a C-contiguous array as bytes, whatever its type and rank."""
    return array.reshape(-1).view(np.uint8)
