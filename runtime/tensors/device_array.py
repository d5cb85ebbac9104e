"""Arrays in a device's memory, as callers give them: recognised without the library they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...errors import TensorError

__all__ = ["AdoptArray", "DeviceArray", "memory_place"]

_HOST_KINDS = frozenset({1, 3, 11, 13})
"""DLPack's CPU, CUDA_HOST, ROCM_HOST and CUDA_MANAGED: memory that the host can read."""
_KINDS = {2: "CUDA", 4: "OPENCL", 7: "VULKAN", 8: "METAL", 10: "ROCM", 14: "ONEAPI"}
"""DLPack's devices that users have, by its numbers."""


class DeviceArray(Protocol):
    """A caller's array that stays in the memory of the device that reads or writes it."""

    @property
    def given(self) -> Any:
        """The object that the caller gave; its memory is in use until the run's last token."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""

    @property
    def is_writable(self) -> bool:
        """True if a device may write it from the first byte to the last."""


AdoptArray = Callable[[Any, str], DeviceArray | np.ndarray[Any, Any]]
"""Takes an array in a device's memory, and a text that says what it is given for.

Called on the caller's thread, so that what the device does with the array comes behind what its
owner has enqueued. A KeptArray of another device comes back as its content on the host. Raises
TensorError for any other array that is elsewhere.
"""


def memory_place(given: Any) -> str | None:
    """Return the device whose memory holds an array, as CUDA.0; None if the host can read it."""
    tell = getattr(given, "__dlpack_device__", None)
    if tell is None or isinstance(given, np.ndarray | np.generic):
        return None
    try:
        kind, index = tell()
    except Exception as error:  # the object's own method may raise anything
        raise TensorError(f"a {type(given).__name__} cannot tell where it lies: {error}") from error
    if int(kind) in _HOST_KINDS:
        return None
    return f"{_KINDS.get(int(kind), f'DLPack device {int(kind)}')}.{index}"
