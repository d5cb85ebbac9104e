"""KeptOutput: an output in a block of its own on the device, for its caller and for later runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ....runtime.tensors.kept_array import KeptArray
from ..queues.driver import AdoptedArray, Bytes, DeviceFacts
from .kept_blocks import KeptBlock

__all__ = ["KeepingDevice", "KeptOutput"]

Array = np.ndarray[Any, Any]
_HOST = (1, 0)  # DLPack's


class KeepingDevice(Protocol):
    """What an output asks of the device that keeps it."""

    name: str

    @property
    def facts(self) -> DeviceFacts:
        """What the device says of itself."""

    def read_kept(self, target: Bytes, block: KeptBlock) -> None:
        """Copy what a block begins with to the host, and wait."""

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        """Make a DLPack capsule of memory that is complete; None where no library takes it."""


class KeptOutput(KeptArray):
    """An output at the start of a block; ``downloaded`` is called with the bytes that were copied.

    A state may be the beginning of memory of the shape ``room``, and the next run of its request
    writes behind it unless not ``may_grow``. Thread-safe.
    """

    def __init__(
        self,
        opened: KeepingDevice,
        block: KeptBlock,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        downloaded: Callable[[int], None],
        room: tuple[int, ...] | None = None,
        *,
        may_grow: bool = True,
    ) -> None:
        super().__init__(opened.name, shape, dtype)
        self.room, self.may_grow = room, may_grow
        self.opened, self.block, self._downloaded = opened, block, downloaded

    @property
    def size_bytes(self) -> int:
        """How much memory its elements take."""
        return math.prod(self.shape) * self.dtype.itemsize

    def adopted(self) -> AdoptedArray:
        """See it as an input; raises ClosedError if the device has taken it back."""
        return AdoptedArray(
            given=self,
            memory=self.block.memory,
            shape=self.shape,
            dtype=self.dtype,
            is_writable=False,
            written=None,
            owner=self.block,
            room=self.room,
            is_argument=True,
        )

    def _download(self) -> Array:
        array = np.empty(self.room or self.shape, self.dtype)
        if math.prod(self.shape):
            self.opened.read_kept(array.reshape(-1).view(np.uint8), self.block)
            self._downloaded(array.nbytes)
        return array[tuple([slice(length) for length in self.shape])].copy() if self.room else array

    def parted(self) -> KeptOutput:
        return KeptOutput(
            self.opened,
            self.block,
            self.shape,
            self.dtype,
            self._downloaded,
            self.room,
            may_grow=False,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        facts = self.opened.facts
        return facts.dlpack_kind, facts.index

    def __dlpack__(self, **options: Any) -> Any:
        """Export the memory, complete as it is; the host's copy if ``dl_device`` asks for that.

        Raises BufferError where no library takes the device's memory or the type.
        """
        wanted = options.get("dl_device")
        if self.room is not None or (wanted is not None and tuple(map(int, wanted)) == _HOST):
            return self.host().__dlpack__(**options)
        self.block.is_exported = True
        capsule = self.opened.export(self.adopted(), options)
        if capsule is None:
            self.block.is_exported = False
            raise BufferError(
                f"no library takes memory of {self.device} by DLPack; np.asarray(tensor) and "
                f"tensor.numpy() give a copy on the host, and networks on {self.device} take the "
                f"tensor as it is"
            )
        return capsule
