"""The arrays that the rows of joined runs are written to, once each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ...runtime.tensors.output_pool import OutputPool

__all__ = ["RowMemory"]

Array = np.ndarray[Any, Any]


class LendingNetwork(Protocol):
    """What is asked of the network inside."""

    @property
    def lends_memory(self) -> bool:
        """True if its device reads ``input_memory`` where it is, and nothing else of the host's."""

    def input_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Make memory, all zeros, for a caller to write an input to."""


class RowMemory:
    """Memory for the inputs of joined runs. Thread-safe.

    Where the device lends memory, rows are gathered into that, and nothing copies them again on the
    host; up to ``most_free`` such arrays wait for runs of the same size, since lending takes long.
    """

    def __init__(self, network: LendingNetwork, most_free: int) -> None:
        self._network = network if network.lends_memory else None
        self._pool = OutputPool(most_free)
        self._free: deque[Array] = deque(maxlen=most_free)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Make an array for the rows of several requests, content undefined."""
        if self._network is None or dtype.hasobject:
            return self._pool.empty(shape, dtype)
        for _ in range(len(self._free)):
            try:
                array = self._free.popleft()
            except IndexError:  # another thread has taken the last
                break
            if array.shape == shape and array.dtype == dtype:
                return array
            self._free.append(array)
        return self._network.input_memory(shape, dtype)

    def give_back(self, arrays: Iterable[Array]) -> None:
        """Take arrays back that no run reads any more, and no result is in."""
        if self._network is not None:
            self._free.extend(arrays)

    def clear(self) -> None:
        """Free all blocks that are not lent, and drop the network."""
        self._free.clear()
        self._network = None
