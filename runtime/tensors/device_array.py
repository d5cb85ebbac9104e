"""Arrays in a device's memory, as callers give them: recognised without the library they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...errors import TensorError
from .kept_array import KeptArray

__all__ = ["AdoptArray", "DeviceArray", "memory_place", "read_by"]

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


AdoptArray = Callable[[Any, str], "DeviceArray | KeptArray | None"]
"""Takes an array in a device's memory, and a text that says what it is given for.

Called on the caller's thread, so that what the device does with the array comes behind what its
owner has enqueued. None for a KeptArray of another device, whose content has to be downloaded.
Raises TensorError for any other array that is elsewhere.
"""


def read_by(adopt: AdoptArray | None, kept: KeptArray, what: str) -> Any:
    """Return what a device reads that was kept: as it is, or the host's copy, for which it blocks.

    ``adopt`` is the device's; None for one that reads the host's memory alone.
    """
    adopted = None if adopt is None else adopt(kept, what)
    return kept.host() if adopted is None else adopted


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
