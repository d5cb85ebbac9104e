"""Spectra: what onnx.reference gives where it is right, and numpy's transform of each frame."""

import numpy as np
import pytest
from onnx.reference.ops.op_stft import _stft

from aioinfer.runtime.operators.own.own_spectra import short_time_spectrum

STEP = np.array(5)
RNG = np.random.default_rng(7)
WINDOW = RNG.normal(size=16).astype(np.float32)


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_are_those_of_onnx(last: int, onesided: int) -> None:
    signal = RNG.normal(size=(3, 50, last)).astype(np.float32)
    found = short_time_spectrum(signal, STEP, WINDOW, onesided=onesided)
    wanted = _stft(signal, 16, 5, 7, WINDOW, onesided=bool(onesided))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_real_signal_needs_no_axis_for_its_parts() -> None:
    signal = RNG.normal(size=(3, 50))
    found = short_time_spectrum(signal, STEP, None, np.array(16))
    np.testing.assert_array_equal(
        found, short_time_spectrum(signal[..., None], STEP, np.ones(16), np.array(16))
    )
    one = np.fft.rfft(signal[2, 10:26])
    np.testing.assert_allclose(found[2, 2, :, 0] + 1j * found[2, 2, :, 1], one)


@pytest.mark.parametrize(
    ("shape", "step", "window"),
    [
        ((128,), 5, 16),
        ((1, 128, 3), 5, 16),
        ((1, 15, 1), 5, 16),
        ((1, 128, 1), 0, 16),
        ((1, 128, 1), 5, 0),
        ((0, 0, 2), 5, 16),
    ],
)
def test_a_signal_without_frames_is_refused(shape: tuple[int, ...], step: int, window: int) -> None:
    with pytest.raises(ValueError, match="signal"):
        short_time_spectrum(np.ones(shape), np.array(step), np.ones(window))


def test_a_window_of_another_length_than_the_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        short_time_spectrum(np.ones((1, 128)), STEP, np.ones(16), np.array(12))
