"""The native kernel of pools does what its numpy twin does, and what a loop over windows does."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.backends.cpu.fallback import KERNELS
from aioinfer.runtime.graph import DType
from unit.backends.cpu.native_calls import run_native

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
MAXIMUM, AVERAGE = 0, 1
DTYPES = [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16, DType.INT8, DType.UINT8]


def count_of(length, size, stride, dilation, begin, end) -> int:
    return (length + begin + end - (size - 1) * dilation - 1) // stride + 1


def words_of(kind, dtype, outer, inner, axes) -> list[int]:
    return [kind, dtype.value, dtype.item_bytes, outer, inner, *itertools.chain(*axes)]


def drawn(shape, dtype, seed=0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 20).astype(dtype.numpy)


def both(kind, source, axes, counts, threads=1) -> list[np.ndarray]:
    """Pool (outer, three axes, inner) natively and in numpy."""
    dtype = DType.of(source.dtype)
    words = words_of(kind, dtype, source.shape[0], source.shape[-1], axes)
    shape = (source.shape[0], *(axis[1] for axis in axes), source.shape[-1])
    made = [np.full(shape, 77, dtype.numpy) for _ in range(2)]
    read = [source] if kind == MAXIMUM else [source, counts]
    run_native("pool", [*read, made[0]], words, threads)
    KERNELS["pool"]([array.ctypes.data for array in (*read, made[1])], words)
    return made


def slowly(kind, source, axes, counts) -> np.ndarray:
    """Look at each window by itself."""
    made = np.zeros((source.shape[0], *(axis[1] for axis in axes), source.shape[-1]), np.float64)
    parts = np.split(counts, np.cumsum([axis[1] for axis in axes])[:-1])
    for place in itertools.product(*(range(axis[1]) for axis in axes)):
        seen = []
        for at, (length, _, size, stride, dilation, pad) in zip(place, axes, strict=True):
            positions = [at * stride - pad + tap * dilation for tap in range(size)]
            seen.append([position for position in positions if 0 <= position < length])
        window = source.astype(np.float64)[
            np.ix_(range(source.shape[0]), *seen, range(source.shape[-1]))
        ]
        index = (slice(None), *place)
        if kind == AVERAGE:
            divisor = math.prod(part[at] for part, at in zip(parts, place, strict=True))
            made[index] = window.sum((1, 2, 3)) / divisor
        else:
            made[index] = window.max((1, 2, 3))
    return made


@st.composite
def cases(draw):
    axes = []
    for _ in range(3):
        size, stride, dilation = (draw(st.integers(1, most)) for most in (4, 3, 3))
        reach = (size - 1) * dilation + 1
        begin, end = (draw(st.integers(0, size - 1)) for _ in range(2))
        length = draw(st.integers(1, 9)) + max(0, reach - 1)
        places = count_of(length, size, stride, dilation, begin, end)
        axes.append((length, places, size, stride, dilation, begin))
    return draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 3, 16, 130, 300])), axes


@EXAMPLES
@given(
    cases(),
    st.sampled_from([MAXIMUM, AVERAGE]),
    st.sampled_from(DTYPES),
    st.integers(1, 2),
    st.booleans(),
)
def test_both_pool_alike(case, kind, dtype, threads, has_nan) -> None:
    outer, inner, axes = case
    if kind == AVERAGE and dtype in (DType.INT8, DType.UINT8):
        dtype = DType.FLOAT32
    source = drawn((outer, *(axis[0] for axis in axes), inner), dtype)
    if has_nan and kind == MAXIMUM and dtype not in (DType.INT8, DType.UINT8):
        source.flat[:: 1 + source.size // 5] = np.nan
    counts = np.random.default_rng(1).integers(1, 5, sum(axis[1] for axis in axes))
    counts = counts.astype(np.float32)
    native, fallback = both(kind, source, axes, counts, threads)
    if kind == MAXIMUM:
        np.testing.assert_array_equal(native, fallback)
        if all(axis[5] < axis[2] and axis[4] == 1 for axis in axes):
            np.testing.assert_array_equal(native, slowly(kind, source, axes, counts))
        return
    scale = np.abs(fallback.astype(np.float64)).max() + 1
    bound = {DType.FLOAT32: 1e-6, DType.FLOAT16: 1e-3, DType.BFLOAT16: 8e-3}[dtype]
    for other in (fallback, slowly(kind, source, axes, counts)):
        error = np.abs(native.astype(np.float64) - other.astype(np.float64)).max()
        assert error <= bound * scale


@pytest.mark.parametrize("inner", [1, 5])
def test_windows_that_are_longer_than_a_chunk(inner) -> None:
    source = drawn((2, 1, 1, 20000, inner), DType.FLOAT32)
    axes = [(1, 1, 1, 1, 1, 0), (1, 1, 1, 1, 1, 0), (20000, 4, 9000, 3500, 1, 250)]
    native, fallback = both(MAXIMUM, source, axes, None)
    np.testing.assert_array_equal(native, fallback)
    wanted = [
        source[:, 0, 0, max(0, at) : at + 9000].max(axis=1) for at in range(-250, 10500, 3500)
    ]
    np.testing.assert_array_equal(native[:, 0, 0], np.stack(wanted, axis=1))


def test_long_rows_are_pooled_in_chunks() -> None:
    source = drawn((1, 1, 3, 20001, 1), DType.FLOAT32)
    axes = [(1, 1, 1, 1, 1, 0), (3, 3, 3, 1, 1, 1), (20001, 10001, 3, 2, 1, 1)]
    native, fallback = both(MAXIMUM, source, axes, None)
    np.testing.assert_array_equal(native, fallback)
    np.testing.assert_array_equal(
        native[0, 0, 1, 1:-1, 0],
        np.lib.stride_tricks.sliding_window_view(source[0, 0, :, :, 0].max(axis=0), 3)[1::2].max(
            axis=1
        ),
    )


@pytest.mark.parametrize(
    ("dtype", "lowest"), [(DType.FLOAT32, -np.inf), (DType.INT8, -128), (DType.UINT8, 0)]
)
@pytest.mark.parametrize("inner", [1, 4])
def test_the_maximum_of_nothing_is_the_lowest_number(dtype, lowest, inner) -> None:
    source = drawn((1, 1, 1, 3, inner), dtype)
    axes = [(1, 1, 1, 1, 1, 0), (1, 2, 1, 1, 1, 1), (3, 3, 1, 1, 1, 0)]
    for made in both(MAXIMUM, source, axes, None):
        np.testing.assert_array_equal(made[0, 0, 0], np.full((3, inner), lowest, dtype.numpy))
        np.testing.assert_array_equal(made[0, 0, 1], source[0, 0, 0])


def test_maxima_keep_infinities_and_nan() -> None:
    source = np.array([np.nan, 1, -np.inf, -np.inf, np.inf, np.nan, np.nan, np.nan], np.float32)
    axes = [(1, 1, 1, 1, 1, 0), (1, 1, 1, 1, 1, 0), (8, 4, 2, 2, 1, 0)]
    for made in both(MAXIMUM, source.reshape(1, 1, 1, 8, 1), axes, None):
        np.testing.assert_array_equal(made.reshape(-1), [np.nan, -np.inf, np.nan, np.nan])
