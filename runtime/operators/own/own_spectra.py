"""Spectra, where onnx.reference takes another axis or says what is wrong by chance."""

from __future__ import annotations

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["short_time_spectrum"]


# onnx.reference takes the batch of (N, length) for its length.
@own("STFT", since=17)
def short_time_spectrum(
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """Return (N, frames, frequencies, 2): the Fourier transform of each frame, times a window.

    signal: (N, length) or (N, length, 1), real, or (N, length, 2), complex. Frames are as long as
    frame_length, or the window, or the signal. Raises ValueError for other shapes, and where there
    is no frame.
    """
    if signal.ndim not in (2, 3) or (signal.ndim == 3 and signal.shape[2] not in (1, 2)):
        raise ValueError(f"a signal is (N, length) or (N, length, 1 or 2), not {signal.shape}")
    wide = signal.astype(np.float64).reshape(*signal.shape[:2], -1 if signal.size else 1)
    numbers = wide[..., 0] + 1j * wide[..., 1] if wide.shape[2] == 2 else wide[..., 0]
    length, step = signal.shape[1], int(np.asarray(frame_step).item())
    if frame_length is not None:
        size = int(np.asarray(frame_length).item())
    else:
        size = length if window is None else len(window)
    if not 1 <= size <= length or step < 1:
        raise ValueError(f"a signal of {length} has no frames of {size}, {step} apart")
    if window is not None and window.shape != (size,):
        raise ValueError(f"a window for frames of {size} is {size} long, not {window.shape}")
    frames = np.lib.stride_tricks.sliding_window_view(numbers, size, axis=1)[:, ::step]
    if window is not None:
        frames = frames * window.astype(np.float64)
    found = np.fft.fft(frames, axis=2)
    if onesided:
        found = found[..., : size // 2 + 1]
    return np.stack([found.real, found.imag], axis=-1).astype(signal.dtype)
