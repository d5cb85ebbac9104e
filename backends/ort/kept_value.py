"""OrtKept: an output in onnxruntime's own memory, for later runs of any session on its provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.tensors.kept_array import KeptArray

__all__ = ["OrtKept"]


class OrtKept(KeptArray):
    """An output as onnxruntime holds it; ``value`` is its OrtValue, which nothing writes again.

    ``place`` tells memories apart: values of one can be read by every session there.
    ``downloaded`` is called with the bytes copied for the host. Thread-safe.
    """

    is_writable = False

    def __init__(
        self,
        device: str,
        place: tuple[str, int],
        downloaded: Callable[[int], None],
        value: Any,
        dtype: np.dtype[Any],
    ) -> None:
        super().__init__(device, tuple(value.shape()), dtype)
        self.place, self.value, self._downloaded = place, value, downloaded

    @property
    def given(self) -> OrtKept:
        """Itself: what a caller gives is what is read."""
        return self

    def _download(self) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = self.value.numpy()
        if array.nbytes:
            self._downloaded(array.nbytes)
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.value.__dlpack_device__()
        return int(kind), int(index)

    def __dlpack__(self, **options: Any) -> Any:
        """Export the host's copy: onnxruntime's own memory may not be written by others."""
        return self.host().__dlpack__(**options)
