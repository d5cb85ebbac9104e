"""The native kernels on rows do what their numpy twins do."""

import struct

import numpy as np
import pytest

from aioinfer.backends.cpu.fallback import KERNELS, PythonRun
from aioinfer.backends.cpu.native import KIND_END, KIND_KERNEL, Runner, runner
from aioinfer.backends.cpu.onednn import open_engine
from aioinfer.runtime.graph import DType

ELEMENTS = {DType.FLOAT32: 0, DType.BFLOAT16: 1}
BOUNDS = {DType.FLOAT32: 2e-6, DType.BFLOAT16: 1.2e-2}


def bits(number: float) -> int:
    return struct.unpack("<q", struct.pack("<d", number))[0]


def both(kernel: str, arrays, parameters, threads=1):
    """Run a kernel natively and in numpy, on copies; returns the arrays after each."""
    engine = open_engine()
    native = runner(engine)
    assert native.is_native
    results = []
    for used in (native, Runner(PythonRun(engine), tuple(KERNELS), False)):
        copies = tuple(array.copy() for array in arrays)
        references = [word for index in range(len(copies)) for word in (index + 1, 0)]
        payload = [len(copies), *references, *parameters]
        step = [used.kinds[kernel], 2 + len(payload), *payload]
        assert used.kinds[kernel] >= KIND_KERNEL
        head = [len(copies), len(copies) - 1, *(copy.nbytes for copy in copies)]
        table = np.array([*head, 0, *step, KIND_END, 2], np.int64)
        assert used.run(table, tuple(copy.view(np.uint8) for copy in copies), threads) is None
        results.append(copies)
    return results


def values(shape, dtype=DType.FLOAT32, seed=0):
    return np.random.default_rng(seed).normal(0, 3, shape).astype(dtype.numpy)


def assert_near(native, fallback, dtype) -> None:
    a, b = native.astype(np.float64), fallback.astype(np.float64)
    assert np.abs(a - b).max() <= BOUNDS[dtype] * np.abs(b).max()


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("is_log", [0, 1])
@pytest.mark.parametrize("shape", [(5, 7, 1), (3, 40, 70), (200, 130, 1), (1, 1, 3)])
@pytest.mark.parametrize("threads", [1, 2])
def test_softmax(dtype, is_log, shape, threads) -> None:
    x = values(shape, dtype)
    parameters = (ELEMENTS[dtype], *shape, is_log)
    native, fallback = both("softmax", (x, np.zeros_like(x)), parameters, threads)
    assert_near(native[1], fallback[1], dtype)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("strides", [None, (0, 0, 0), (33, 0, 0), (0, 5 * 33, 33)])
@pytest.mark.parametrize("threads", [1, 2])
def test_attention_probabilities(dtype, strides, threads) -> None:
    shape = (2, 3, 5, 33)
    scores, mask = values(shape), values((3, 5, 33), seed=1)
    made = np.zeros(shape, dtype.numpy)
    arrays = (scores, made) if strides is None else (scores, made, mask)
    parameters = (ELEMENTS[dtype], *shape, bits(0.3), int(strides is not None))
    native, fallback = both(
        "attention_probabilities", arrays, (*parameters, *(strides or (0, 0, 0)), 0), threads
    )
    assert_near(native[1], fallback[1], dtype)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("zero_empty_rows", [0, 1])
def test_probabilities_of_rows_without_any(dtype, zero_empty_rows) -> None:
    scores = values((1, 1, 4, 33))
    scores[..., 1, :] = -np.inf
    scores[..., 2, 5] = np.nan
    parameters = (ELEMENTS[dtype], *scores.shape, bits(0.3), 0, 0, 0, 0, zero_empty_rows)
    made = np.ones(scores.shape, dtype.numpy)
    for found in both("attention_probabilities", (scores, made), parameters):
        rows = found[1][0, 0].astype(np.float32)
        wanted = np.zeros((2, 33)) if zero_empty_rows else np.full((2, 33), np.nan)
        np.testing.assert_array_equal(rows[1:3], wanted)
        np.testing.assert_allclose(rows[[0, 3]].sum(axis=-1), 1, rtol=BOUNDS[dtype])


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (3, 33), (90, 200)])
@pytest.mark.parametrize("threads", [1, 2])
def test_rms_norm(dtype, rows, length, threads) -> None:
    x = values((rows, length), dtype)
    arrays = (x, values((length,), seed=1), np.zeros_like(x))
    parameters = (ELEMENTS[dtype], rows, length, bits(1e-3))
    native, fallback = both("rms_norm", arrays, parameters, threads)
    assert_near(native[2], fallback[2], dtype)


def test_a_number_that_is_none_stays_one_in_bfloat16() -> None:
    x = np.array([[np.nan, 1.0, 2.0]], DType.BFLOAT16.numpy).reshape(1, 3, 1)
    native, _ = both("softmax", (x, np.zeros_like(x)), (1, 1, 3, 1, 0))
    assert np.isnan(native[1].astype(np.float32)).all()
