"""Depthwise convolutions of stored numbers by flat rows: exact sums, wherever a row ends."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.cpu.kernels.matrices.int8_packing import packed_taps
from aioinfer.backends.cpu.kernels.windows.int8_taps import goes_by_taps
from aioinfer.backends.cpu.plans.int8_words import Int8Words, flat_line_bytes
from aioinfer.runtime.lowering.window import Window
from unit.backends.cpu.native_calls import run_native

Array = np.ndarray
Pair = tuple[int, int]
TYPES = {np.dtype(np.uint8): 2, np.dtype(np.int8): 3, np.dtype(np.float32): 1}
LINEAR, ADD = 6, 42


def convolved(
    x: Array, weights: Array, made: Pair, strides: Pair, dilations: Pair, pads: Pair
) -> Array:
    """Sum up (N, H, W, C) with weights (C, kh, kw), in int64; what is outside is 0."""
    images, height, width, channels = x.shape
    sums = np.zeros((images, *made, channels), np.int64)
    for (a, b), y, z in itertools.product(
        np.ndindex(*weights.shape[1:]), range(made[0]), range(made[1])
    ):
        line = y * strides[0] + a * dilations[0] - pads[0]
        place = z * strides[1] + b * dilations[1] - pads[1]
        if 0 <= line < height and 0 <= place < width:
            sums[:, y, z] += x[:, line, place].astype(np.int64) * weights[:, a, b]
    return sums


def computed(
    x: Array,
    weights: Array,
    made: Pair,
    strides: Pair = (1, 1),
    dilations: Pair = (1, 1),
    pads: Pair = (0, 0),
    *,
    scales: Array | None = None,
    shifts: Array | None = None,
    dtype: Any = np.float32,
    others: tuple[Array, ...] = (),
    steps: tuple[int, ...] = (),
    threads: int = 1,
) -> Array:
    """Run the kernel; what it must not write is checked to be as it was."""
    images, height, width, channels = x.shape
    packed = packed_taps(weights.reshape(channels, -1), is_signed=x.dtype == np.int8)
    words = Int8Words(
        images,
        height,
        width,
        *made,
        (weights.shape[1], weights.shape[2]),
        strides,
        dilations,
        pads,
        pad=0,
        groups=channels,
        channels=1,
        columns=1,
        source_type=TYPES[x.dtype],
        result_type=TYPES[np.dtype(dtype)],
        is_mixed=0,
        chunk_count=0,
        scale_count=channels,
        block_rows=1,
        parts=threads,
        other_count=len(others),
        step_count=len(steps) // 4,
    )
    rows = [
        np.ones(channels, np.float32) if scales is None else scales,
        np.zeros(channels, np.float32) if shifts is None else shifts,
    ]
    size = threads * flat_line_bytes(words)
    scratch = np.full(size + 64, 77, np.uint8)
    count = images * made[0] * made[1] * channels
    result = np.full(count + 64, 77, dtype)
    types = [TYPES[other.dtype] for other in others]
    operands = [
        *(x, packed.weights, packed.starts, *(row[packed.order] for row in rows), *others),
        *(scratch, result),
    ]
    run_native("int8_taps", operands, (*words.flat(), *types, *steps), threads)
    assert (scratch[size:] == 77).all()
    assert (result[count:] == 77).all()
    return result[:count].reshape(images, *made, channels)


def data_of(shape: tuple[int, ...], dtype: type) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(5).integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights_of(*shape: int) -> Array:
    return np.random.default_rng(6).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [8, 24, 32, 40, 64, 96, 136, 320])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 13])
def test_sums_are_exact_wherever_channels_and_rows_end(
    dtype: type, channels: int, width: int
) -> None:
    x, weights = data_of((2, 4, width, channels), dtype), weights_of(channels, 3, 3)
    shape = ((4, width), (1, 1), (1, 1), (1, 1))
    found = computed(x, weights, *shape)
    np.testing.assert_array_equal(found, convolved(x, weights, *shape))


WINDOWS = [
    *((size, (1, 1), (1, 1), pads) for size in ((1, 1), (2, 2), (1, 5), (5, 1), (3, 2), (5, 5))
      for pads in ((0, 0), (2, 1))),
    *(((3, 3), strides, (1, 1), pads) for strides in ((2, 2), (1, 3), (3, 1), (2, 4))
      for pads in ((0, 0), (1, 1), (2, 3))),
    *(((3, 3), strides, dilations, (2, 2)) for strides in ((1, 1), (2, 2), (3, 2))
      for dilations in ((2, 2), (1, 3), (3, 1))),
    ((8, 8), (1, 1), (1, 1), (3, 4)),
    ((7, 7), (2, 2), (1, 1), (3, 3)),
    ((3, 3), (1, 1), (6, 5), (7, 6)),
    ((4, 4), (5, 5), (1, 1), (0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_are_exact_for_any_window(
    window: tuple[Pair, Pair, Pair, Pair], dtype: type, threads: int
) -> None:
    size, strides, dilations, pads = window
    x, weights = data_of((2, 9, 10, 24), dtype), weights_of(24, *size)
    room = [
        length + 2 * pad - (taps - 1) * step - 1
        for length, pad, taps, step in zip(x.shape[1:3], pads, size, dilations, strict=True)
    ]
    made = (room[0] // strides[0] + 1, room[1] // strides[1] + 1)
    found = computed(x, weights, made, strides, dilations, pads, threads=threads)
    np.testing.assert_array_equal(found, convolved(x, weights, made, strides, dilations, pads))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("weight", [-128, 127])
def test_the_largest_sums_are_exact(dtype: type, weight: int) -> None:
    for number in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        x, weights = np.full((1, 8, 8, 8), number, dtype), np.full((8, 8, 8), weight, np.int8)
        found = computed(x, weights, (1, 1))
        np.testing.assert_array_equal(found, convolved(x, weights, (1, 1), (1, 1), (1, 1), (0, 0)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("size", [(3, 3), (5, 5), (2, 3)])
@pytest.mark.parametrize("channels", [8, 48, 64])
def test_results_are_rounded_to_even_and_kept_in_range(
    dtype: type, size: Pair, channels: int
) -> None:
    x, weights = data_of((1, 6, 7, channels), np.uint8), weights_of(channels, *size)
    scales = np.resize(np.float32([1 / 64, 1 / 256, 1 / 2, 1e6]), channels)
    shifts = np.resize(np.float32([0.5, -3, 100, 1e30, -1e30]), channels)
    shape = ((5, 5), (1, 1), (1, 1), (1, 1))
    found = computed(x, weights, *shape, scales=scales, shifts=shifts, dtype=dtype)
    numbers = convolved(x, weights, *shape).astype(np.float32) * scales + shifts
    limits = np.iinfo(dtype)
    wanted = np.clip(np.rint(numbers), limits.min, limits.max)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
@pytest.mark.parametrize("channels", [8, 24, 64])
def test_steps_take_operands_that_lie_like_the_result(dtype: type, channels: int) -> None:
    x, weights = data_of((2, 3, 5, channels), np.uint8), weights_of(channels, 3, 3)
    shape = ((3, 5), (1, 1), (1, 1), (1, 1))
    others = (data_of((2, 3, 5, channels), np.int8), data_of((2, 3, 5, channels), np.uint8))
    half = int(np.float64(0.5).view(np.int64))
    steps = (ADD, 1, 0, 0, LINEAR, 0, half, half, ADD, 2, 0, 0)
    scales = np.full(channels, 1 / 256, np.float32)
    found = computed(x, weights, *shape, scales=scales, dtype=dtype, others=others, steps=steps)
    sums = convolved(x, weights, *shape) / 256
    wanted = (sums + others[0]) * 0.5 + 0.5 + others[1]
    if dtype is not np.float32:
        wanted = np.clip(np.rint(wanted), np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_array_equal(found, wanted.astype(dtype))


def taken(
    weights: tuple[int, ...],
    size: tuple[int, ...] = (3, 3),
    *,
    strides: Pair = (1, 1),
    dilations: tuple[int, ...] = (1, 1),
    width: int = 14,
    instruction_set: int = 0x67,
) -> bool:
    none = (0,) * len(size)
    window = Window(size, strides[: len(size)], dilations, none, none)
    return goes_by_taps(weights, weights[0], window, width, instruction_set)


def test_depthwise_convolutions_are_taken_where_the_processor_has_the_instructions() -> None:
    assert taken((24, 1, 3, 3))
    assert taken((24, 1, 3, 3), instruction_set=0xE7)
    assert taken((24, 1, 5), (5,), dilations=(99,))
    assert not taken((24, 1, 3, 3), instruction_set=0x27)
    assert not taken((24, 1, 3, 3), instruction_set=0xF)


def test_other_convolutions_are_not_taken() -> None:
    assert not goes_by_taps((24, 24, 3, 3), 1, Window(*[(3, 3)] * 5), 14, 0x67)
    assert not goes_by_taps((48, 1, 3, 3), 24, Window(*[(3, 3)] * 5), 14, 0x67)
    assert not taken((24, 1, 3, 3, 3), (3, 3, 3), dilations=(1, 1, 1))
    assert not taken((37, 1, 3, 3))
    assert not taken((1, 1, 3, 3))


def test_windows_have_a_bound_in_taps_and_lines() -> None:
    assert taken((24, 1, 8, 8), (8, 8))
    assert not taken((24, 1, 9, 8), (9, 8))
    assert taken((24, 1, 3, 3), dilations=(31, 1))
    assert not taken((24, 1, 3, 3), dilations=(32, 1))


def test_what_is_slower_is_left_to_onednn() -> None:
    assert not taken((32, 1, 3, 3), strides=(2, 2))
    assert taken((32, 1, 3, 3), strides=(2, 1))
    assert taken((40, 1, 3, 3), strides=(2, 2))
    assert taken((32, 1, 5, 5), (5, 5), strides=(2, 2))
    assert not taken((232, 1, 3, 3), width=7)
    assert taken((232, 1, 3, 3), width=8)
    assert taken((576, 1, 3, 3), width=1)
