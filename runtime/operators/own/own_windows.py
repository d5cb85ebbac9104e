"""Windows of spectra, made part by part, for their length is a number that a caller gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...graph import DType
from ..plain_operators import Array
from .own_operators import own

__all__ = ["LONGEST_WINDOW"]

LONGEST_WINDOW = 1 << 28
"""A longer one is a mistake or an attack: this is an hour of sound at 74 kHz."""

_PART = 1 << 16


def _window(
    weights: Sequence[float],
) -> Callable[..., Array]:
    """Return what makes the window of a sum of cosines, by their weights."""

    def window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        count = int(np.asarray(size).item())
        if not 0 <= count <= LONGEST_WINDOW:
            raise ValueError(f"a window of {count} elements is none of 0 to {LONGEST_WINDOW}")
        made = np.empty(count, DType(output_datatype).numpy)
        period = np.float64(count if periodic else count - 1)
        for start in range(0, count, _PART):
            angles = np.arange(start, min(start + _PART, count)) * (2 * np.pi) / period
            part = np.full(len(angles), weights[0])
            for order, weight in enumerate(weights[1:], 1):
                part += weight * np.cos(order * angles)
            made[start : start + _PART] = part.astype(made.dtype)
        return made

    return window


# onnx.reference holds several whole windows of 64-bit numbers, however long.
hann_window = own("HannWindow", since=17)(_window((0.5, -0.5)))
hamming_window = own("HammingWindow", since=17)(_window((25 / 46, -21 / 46)))
blackman_window = own("BlackmanWindow", since=17)(_window((0.42, -0.5, 0.08)))
