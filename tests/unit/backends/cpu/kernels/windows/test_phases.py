"""Windows that write as windows that read: every small case, by the definition of both."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aioinfer.backends.cpu.kernels.windows.phases import has_few_zeros, phase_weights, phases_of
from aioinfer.runtime.lowering.window import Window


def written(x: np.ndarray, weights: np.ndarray, window: Window, made: int) -> np.ndarray:
    """What windows of one axis write to ``made`` places: x (C, length), weights (C, M, taps)."""
    result = np.zeros((weights.shape[1], made), np.int64)
    for place, tap in itertools.product(range(x.shape[1]), range(weights.shape[2])):
        at = place * window.strides[0] + tap * window.dilations[0] - window.pads_begin[0]
        if 0 <= at < made:
            result[:, at] += x[:, place] @ weights[:, :, tap]
    return result


def read(x: np.ndarray, weights: np.ndarray, window: Window, count: int) -> np.ndarray:
    """What windows of one axis read: weights (M, C, taps), strides of 1."""
    wide = np.pad(x, ((0, 0), (window.pads_begin[0], window.pads_end[0])))
    reach = (weights.shape[2] - 1) * window.dilations[0]
    assert wide.shape[1] == count + reach
    taps = [
        weights[:, :, tap] @ wide[:, tap * window.dilations[0] :][:, :count]
        for tap in range(weights.shape[2])
    ]
    found: np.ndarray = np.sum(taps, axis=0)
    return found


@pytest.mark.parametrize("taps", range(1, 6))
@pytest.mark.parametrize("stride", range(1, 5))
@pytest.mark.parametrize("dilation", range(1, 4))
def test_phases_of_an_axis_are_what_windows_write(taps: int, stride: int, dilation: int) -> None:
    random = np.random.default_rng(taps)
    weights = random.integers(-9, 9, (2, 3, taps))
    reach = (taps - 1) * dilation + 1
    for length, begin in itertools.product(range(1, 5), range(reach + 2 * stride)):
        x = random.integers(-9, 9, (2, length))
        whole = (length - 1) * stride + reach
        for made in range(1, whole + stride + 1):
            window = Window((taps,), (stride,), (dilation,), (begin,), (whole - begin - made,))
            phases = phases_of(window, (length,), (made,))
            assert phases.window.strides == (1,)
            assert min(*phases.window.pads_begin, *phases.window.pads_end, *phases.cut) >= 0
            arranged = phase_weights(weights, window, phases)
            (count,), (size,), (cut,) = phases.counts, phases.phases, phases.cut
            found = read(x, arranged, phases.window, count).reshape(size, 3, count)
            places = found.transpose(1, 2, 0).reshape(3, count * size)[:, cut : cut + made]
            np.testing.assert_array_equal(places, written(x, weights, window, made))


def test_axes_are_independent_and_channels_innermost() -> None:
    window = Window((4, 3), (2, 3), (1, 1), (1, 0), (1, 0))
    phases = phases_of(window, (5, 6), (10, 18))
    assert phases.phases == (2, 3)
    assert phases.window.kernel == (2, 1)
    assert phases.counts == (6, 6)
    assert phases.cut == (1, 0)
    weights = np.arange(2 * 5 * 4 * 3).reshape(2, 5, 4, 3)
    arranged = phase_weights(weights, window, phases).reshape(2, 3, 5, 2, 2, 1)
    for down, across, tap in itertools.product(range(2), range(3), range(2)):
        wanted = weights[:, :, down + 2 * (1 - tap), across].T
        np.testing.assert_array_equal(arranged[down, across, :, :, tap, 0], wanted)


def test_a_single_element_writes_all_phases_of_one_block() -> None:
    phases = phases_of(Window((4, 4), (1, 1), (1, 1), (0, 0), (0, 0)), (1, 1), (4, 4))
    assert phases.window.kernel == (1, 1)
    assert phases.phases == (4, 4)
    assert phases.counts == (1, 1)


@pytest.mark.parametrize(
    ("taps", "stride", "dilation", "are_few"),
    [
        *((4, 2, 1, True), (3, 2, 1, True), (2, 2, 1, True), (3, 1, 3, True)),
        *((1, 2, 1, False), (2, 3, 1, False), (3, 2, 2, False)),
    ],
)
def test_zeros_are_counted(taps: int, stride: int, dilation: int, are_few: bool) -> None:
    window = Window((taps,) * 2, (stride,) * 2, (dilation,) * 2, (0, 0), (0, 0))
    assert has_few_zeros(window) is are_few


def test_each_group_has_its_phases_beside_each_other() -> None:
    window = Window((4, 3), (2, 3), (1, 1), (1, 0), (1, 0))
    phases = phases_of(window, (5, 6), (10, 18))
    weights = np.arange(6 * 5 * 4 * 3).reshape(6, 5, 4, 3)
    arranged = phase_weights(weights, window, phases, 3)
    assert arranged.shape == (3 * 6 * 5, 2, 2, 1)
    for group, part in enumerate(np.split(arranged, 3)):
        of_group = phase_weights(weights[2 * group : 2 * group + 2], window, phases)
        np.testing.assert_array_equal(part, of_group)
