"""KeptArray: an output that stays in its device's memory, until somebody reads it on the host."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

__all__ = ["KeptArray"]

Array = np.ndarray[Any, Any]


class KeptArray(ABC):
    """What a Tensor of results holds whose content a device keeps. Thread-safe.

    A backend's subclass has the memory, which is its own: no later run writes it, and it goes back
    when nothing holds this object any more. Slots put it into a run's results as soon as what
    writes it is enqueued. Callers get it, in a Tensor, when the run has ended; what takes it
    before, as HETERO does, starts what reads it after the run's token. To a network of the same
    device it is an input that is read where it is: its ``adopt_array`` takes it. So an output can
    feed the same network's next run, as a state does, and never comes to the host.
    """

    def __init__(self, device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.device = device
        """The device whose memory it is."""
        self.shape, self.dtype = shape, dtype
        self._lock = threading.Lock()
        self._host: Array | None = None

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_on_host(self) -> bool:
        """True if the host has its content, too."""
        return self._host is not None

    def host(self) -> Array:
        """Return its content on the host, read-only: the same array each time.

        The first call copies it, and blocks; others wait for that. Raises DeviceError, and
        ClosedError if the device was closed before.
        """
        with self._lock:
            if self._host is None:
                array = self._download()
                array.flags.writeable = False
                self._host = array
            return self._host

    def parted(self) -> KeptArray:
        """(optional) Return the same content, behind which no run writes in the same memory."""
        return self

    @abstractmethod
    def _download(self) -> Array:
        """Copy the content to a new array. Blocks."""

    @abstractmethod
    def __dlpack_device__(self) -> tuple[int, int]: ...

    @abstractmethod
    def __dlpack__(self, **options: Any) -> Any:
        """Export the memory itself; BufferError where no library takes it."""
