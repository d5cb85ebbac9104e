"""The native kernels for int8: exact sums, whatever weights and data are."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.cpu.kernels.matrices.int8_packing import (
    fits_squares,
    packed_depthwise,
    packed_product,
    packed_squares,
)
from aioinfer.backends.cpu.native.step_runner import (
    KIND_END,
    STATUS_STOPPED,
    step_runner,
)
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.int8_words import Int8Words
from unit.backends.cpu.native_calls import run_native

U8, I8, F32 = 2, 3, 1
Array = np.ndarray


def convolved(x: Array, weights: Array, stride: int, pad: int, groups: int) -> Array:
    """Sum up (H, W, C) with weights (M, C / groups, kh, kw), in int64; pads are 0."""
    padded = np.pad(x.astype(np.int64), ((pad, pad), (pad, pad), (0, 0)))
    count, channels, high, wide = weights.shape
    made = [(n - k) // stride + 1 for n, k in zip(padded.shape, (high, wide), strict=False)]
    sums = np.zeros((*made, count), np.int64)
    for column in range(count):
        first = column // (count // groups) * channels
        for a, b in itertools.product(range(high), range(wide)):
            part = padded[a : a + stride * made[0] : stride, b : b + stride * made[1] : stride]
            part = part[: made[0], : made[1], first : first + channels]
            sums[..., column] += part @ weights[column, :, a, b].astype(np.int64)
    return sums


PLAIN = Int8Words(
    images=1,
    height=1,
    width=1,
    made_height=1,
    made_width=1,
    window=(1, 1),
    strides=(1, 1),
    dilations=(1, 1),
    pads=(0, 0),
    pad=0,
    groups=1,
    channels=1,
    columns=1,
    source_type=U8,
    result_type=F32,
    is_mixed=0,
    chunk_count=0,
    scale_count=1,
    block_rows=1,
    parts=1,
    other_count=0,
    step_count=0,
)


def words_of(x: Array, made: Sequence[int], **words: Any) -> list[int]:
    """Words for data (H, W, C) and the lengths of the result, with one scale and no steps."""
    lengths = {"height": x.shape[0], "width": x.shape[1]}
    lengths |= {"made_height": made[0], "made_width": made[1]}
    source_type = I8 if x.dtype == np.int8 else U8
    return list(PLAIN._replace(source_type=source_type, **lengths, **words).flat())


def computed(
    x: Array, weights: Array, stride: int = 1, pad: int = 0, groups: int = 1, threads: int = 1
) -> Array:
    """Sum up by a native kernel; sums of float32 are exact up to 2^24."""
    count, channels, high, wide = weights.shape
    height, width = x.shape[:2]
    made = [(n + 2 * pad - k) // stride + 1 for n, k in ((height, high), (width, wide))]
    rows = np.moveaxis(weights, 1, -1).reshape(groups, count // groups, -1)
    is_depthwise = groups > 1 and channels == 1 and count == groups
    packed, is_mixed, chunks = [packed_depthwise(rows[:, 0])], False, 0
    if not is_depthwise:
        product = packed_product(rows, is_signed=x.dtype == np.int8)
        packed, is_mixed = [product.weights, product.places, product.starts], product.is_mixed
        chunks = product.weights.size // 64
    row_bytes = -(-rows.shape[2] // 4) * (12 if is_mixed else 4)
    scratch = np.zeros(groups if is_depthwise else threads * (12 * row_bytes + 32), np.uint8)
    result = np.zeros((*made, count), np.float32)
    arrays = [x, *packed, np.ones(1, np.float32), np.zeros(count, np.float32), scratch, result]
    words = words_of(
        x,
        made,
        window=(high, wide),
        strides=(stride, stride),
        pads=(pad, pad),
        groups=groups,
        channels=channels,
        columns=count // groups,
        is_mixed=is_mixed,
        chunk_count=chunks,
        block_rows=12,
        parts=threads,
    )
    run_native("int8_depthwise" if is_depthwise else "int8_product", arrays, words, threads)
    return result.astype(np.int64)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("data", "weight"), [*itertools.product(("low", "high"), (-128, 127))])
@pytest.mark.parametrize("channels", [1, 5, 64])
def test_the_largest_sums_are_exact(dtype: type, data: str, weight: int, channels: int) -> None:
    limits = np.iinfo(dtype)
    x = np.full((3, 5, channels), limits.min if data == "low" else limits.max, dtype)
    weights = np.full((20, channels, 3, 3), weight, np.int8)
    found = computed(x, weights, pad=1)
    np.testing.assert_array_equal(found, convolved(x, weights, 1, 1, 1))


CASES = [
    # height, width, channels, columns, window, stride, pad, groups
    (7, 9, 8, 16, 1, 1, 0, 1),
    (7, 9, 7, 21, 1, 1, 0, 1),
    (8, 8, 3, 17, 3, 2, 1, 1),
    (5, 4, 24, 40, 3, 1, 2, 1),
    (6, 7, 12, 48, 3, 1, 1, 3),
    (6, 7, 48, 48, 3, 1, 1, 48),
    (9, 7, 21, 21, 5, 2, 2, 21),
    (1, 1, 130, 1, 1, 1, 0, 1),
    (4, 4, 2, 2, 3, 1, 1, 2),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("most", [64, 127], ids=["pairs fit", "pairs overflow"])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_are_exact(case: tuple[int, ...], dtype: type, most: int, threads: int) -> None:
    height, width, channels, columns, window, stride, pad, groups = case
    random = np.random.default_rng(columns)
    limits = np.iinfo(dtype)
    x = random.integers(limits.min, limits.max + 1, (height, width, channels)).astype(dtype)
    shape = (columns, channels // groups, window, window)
    weights = random.integers(-most, most + 1, shape).astype(np.int8)
    found = computed(x, weights, stride, pad, groups, threads)
    np.testing.assert_array_equal(found, convolved(x, weights, stride, pad, groups))


@pytest.mark.parametrize("columns", [16, 160])
def test_no_thread_writes_into_the_data_of_another(columns: int) -> None:
    """A row of 7 bytes is written by a vector of 16, beyond the last one of a thread."""
    random = np.random.default_rng(3)
    x = random.integers(0, 256, (60, 80, 7)).astype(np.uint8)
    weights = random.integers(-64, 65, (columns, 7, 1, 1)).astype(np.int8)
    expected = convolved(x, weights, 1, 0, 1)
    for _ in range(20):
        np.testing.assert_array_equal(computed(x, weights, threads=2), expected)


def by_squares(x: Array, weights: Array, pads: tuple[int, int], threads: int = 1) -> Array:
    """Sum up by squares, in blocks of 6; there are as many rows and columns as x has."""
    height, width, channels = x.shape
    count = len(weights)
    part = 16 * (6 * (2 * channels + 64) + 64)
    result = np.zeros((height, width, count), np.float32)
    arrays = [x, packed_squares(weights), np.ones(1, np.float32), np.zeros(count, np.float32)]
    sizes = {"window": (3, 3), "channels": channels, "columns": count}
    words = words_of(x, (height, width), pads=pads, block_rows=6, parts=threads, **sizes)
    scratch = np.full(threads * part + channels, 77, np.uint8)
    run_native("int8_squares", [*arrays, scratch, result], words, threads)
    return result.astype(np.int64)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 7), (9, 14)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("channels", "columns"), [(16, 16), (48, 21)])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_by_squares_are_exact(
    size: tuple[int, int], dtype: type, channels: int, columns: int, threads: int
) -> None:
    random = np.random.default_rng(columns)
    limits = np.iinfo(dtype)
    x = random.integers(limits.min, limits.max + 1, (*size, channels)).astype(dtype)
    weights = random.integers(-128, 128, (columns, channels, 3, 3)).astype(np.int8)
    found = by_squares(x, weights, (1, 1), threads)
    np.testing.assert_array_equal(found, convolved(x, weights, 1, 1, 1))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("data", ["low", "high", "both"])
@pytest.mark.parametrize("weight", [-128, 127])
def test_the_largest_sums_by_squares_are_exact(dtype: type, data: str, weight: int) -> None:
    limits = np.iinfo(dtype)
    x = np.full((4, 6, 48), limits.min if data == "low" else limits.max, dtype)
    if data == "both":
        x[::2, ::2], x[1::2, 1::2] = limits.min, limits.min
    weights = np.full((16, 48, 3, 3), weight, np.int8)
    found = by_squares(x, weights, (1, 1))
    np.testing.assert_array_equal(found, convolved(x, weights, 1, 1, 1))


def test_pads_of_squares_may_be_larger_than_windows() -> None:
    random = np.random.default_rng(3)
    x = random.integers(0, 256, (5, 5, 16)).astype(np.uint8)
    weights = random.integers(-128, 128, (16, 16, 3, 3)).astype(np.int8)
    found = by_squares(x, weights, (4, 3))
    padded = np.pad(x, ((4, 0), (3, 0), (0, 0)))
    np.testing.assert_array_equal(found, convolved(padded, weights, 1, 1, 1)[1:6, 1:6])


def test_weights_whose_fourfold_sums_fit_no_32_bits_are_no_squares() -> None:
    assert fits_squares(np.full((2, 1820, 3, 3), 127, np.int8))
    assert not fits_squares(np.full((2, 1856, 3, 3), 127, np.int8))


@pytest.mark.parametrize("weights", [[64, 64, -64, -64], [127, -128, 127, 1]])
def test_pairs_that_fit_stay_narrow(weights: list[int]) -> None:
    made = packed_product(np.array([[weights]], np.int8), is_signed=False)
    assert (made.is_mixed, made.places.tolist()) == (False, [0, 1, 1, 0])


def test_few_chunks_that_do_not_fit_are_halved() -> None:
    weights = np.ones((1, 1, 80), np.int8)
    weights[0, 0, 4:6] = 127
    made = packed_product(weights, is_signed=False)
    assert not made.is_mixed
    assert made.places.tolist() == [0, 21, 21, *range(20), 1]
    halves = made.weights.view(np.int8).reshape(21, 16, 4)
    assert halves[[1, 20], 0].tolist() == [[64, 64, 1, 1], [63, 63, 0, 0]]


def test_many_chunks_that_do_not_fit_are_wide() -> None:
    weights = np.ones((1, 1, 12), np.int8)
    weights[0, 0, 4:8] = [127, 126, -125, -124]
    made = packed_product(weights, is_signed=False)
    assert made.is_mixed
    assert made.places.tolist() == [0, 2, 4, 0, 2, 3 + 2, 3 + 3]
    wide = made.weights[128:].view(np.int16).reshape(2, 16, 2)
    assert wide[:, 0].tolist() == [[127, 126], [-125, -124]]


@pytest.mark.parametrize("most", [40, 127], ids=["whole", "halved or wide"])
def test_packing_leaves_no_holes_behind(most: int) -> None:
    """A large temporary array that is freed teaches malloc to keep others of its size."""
    chance = np.random.default_rng(0)
    weights = chance.integers(-most, most + 1, (2048, 64, 3, 3)).astype(np.int8)
    packed_product(weights.reshape(1, 2048, -1), is_signed=True)
    tracemalloc.start()
    try:
        packed = packed_product(weights.reshape(1, 2048, -1), is_signed=True)
        fits_squares(weights)
        squares = packed_squares(weights)
        held = packed.places.nbytes + packed.starts.nbytes
        assert tracemalloc.get_traced_memory()[1] - held < weights.nbytes / 2
    finally:
        tracemalloc.stop()
    assert squares.nbytes == 16 * 2048 * 64 * 2


def table_of(arrays: list[Array], words: list[int], kernel: str = "int8_product") -> Array:
    payload = [len(arrays), *(part for item in arrays for part in (0, item.ctypes.data))]
    kind = step_runner(open_engine()).kinds[kernel]
    return np.array(
        [0, 0, 0, kind, 2 + len(payload) + len(words), *payload, *words, KIND_END, 2], np.int64
    )


def rows_of(places: list[int], result: Array) -> Array:
    """A table for rows of one chunk with one column."""
    rows = result.size
    arrays = [
        np.ones(4 * rows, np.uint8),
        np.ones(64 * (len(places) - 3), np.uint8),
        np.array(places, np.int32),
        np.zeros(16, np.int32),
        np.full(1, 1 / 3, np.float32),
        np.zeros(1, np.float32),
        np.zeros(12 * 4 + 32, np.uint8),
        result,
    ]
    held.append(arrays)
    source = arrays[0].reshape(1, rows, 4)
    chunks = len(places) - 3
    return table_of(
        arrays, words_of(source, (1, rows), channels=4, chunk_count=chunks, block_rows=12)
    )


held: list[list[Array]] = []
"""What the tables point to."""


def test_a_product_stops_between_its_blocks_of_rows() -> None:
    word = bytearray(4 * 600)
    result = np.frombuffer(word, np.float32)
    found = step_runner(open_engine()).run(rows_of([0, 1, 1, 0], result), (), 1, word)
    assert found == (STATUS_STOPPED, 0)
    assert np.count_nonzero(result) == 12


def test_squares_stop_between_their_blocks() -> None:
    word = bytearray(4 * 16 * 24 * 2)
    result = np.frombuffer(word, np.float32).reshape(2, 24, 16)
    arrays = [
        np.ones((2, 24, 16), np.uint8),
        packed_squares(np.ones((16, 16, 3, 3), np.int8)),
        np.full(1, 1 / 3, np.float32),
        np.zeros(16, np.float32),
        np.zeros(16 * (6 * (2 * 16 + 64) + 64) + 16, np.uint8),
        result,
    ]
    sizes = {"window": (3, 3), "pads": (1, 1), "channels": 16, "columns": 16}
    words = words_of(arrays[0], (2, 24), block_rows=6, **sizes)
    table = table_of(arrays, words, "int8_squares")
    assert step_runner(open_engine()).run(table, (), 1, word) == (STATUS_STOPPED, 0)
    assert np.count_nonzero(result) == 2 * 12 * 16
