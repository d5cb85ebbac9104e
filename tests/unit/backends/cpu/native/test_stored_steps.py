"""Steps that dequantise, round and quantise in one walk give what they give one after the other."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from onnx import TensorProto

from unit.backends.cpu.native_calls import run_native

LINEAR, CLIP, ROUND, THRESHOLDED, ADD, SUB, MUL, DIV = 6, 14, 17, 38, 42, 43, 44, 45
"""Steps, as elementwise_parameters.py numbers them."""

ELEMENTS = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
}
COUNTS = (1, 7, 16, 33, 511, 512, 513, 5000)
STORED = (np.uint8, np.int8)
SCALE = np.float32(0.037)

Array = np.ndarray
Step = tuple[int, int, float, float]


def bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", float(number)))[0])


def run(operands: list[Array], result: Array, steps: list[Step]) -> Array:
    """Run a group over the last two axes, of two; operands of one number repeat."""
    rows, columns = result.shape
    parameters = [len(operands) + 1, 2, len(steps), rows, columns]
    for array in (*operands, result):
        strides = array.strides if array.shape == result.shape else (0, 0)
        parameters += [ELEMENTS[array.dtype], *strides]
    for number, operand, alpha, beta in steps:
        parameters += [number, operand, bits(alpha), bits(beta)]
    run_native("float_elementwise", [*operands, result], parameters)
    return result


def numbers(shape: tuple[int, int]) -> Array:
    """Numbers of which some are halfway between two quanta, out of range, or none."""
    chance = np.random.default_rng(len(shape) + shape[1])
    drawn = chance.normal(0, 4, shape).astype(np.float32)
    drawn[:, ::3] = (np.rint(drawn[:, ::3] / SCALE) + np.float32(0.5)) * SCALE
    odd = [np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30, 1e-40]
    drawn.flat[: len(odd)] = odd[: drawn.size]
    return drawn


def stored(dtype: type, shape: tuple[int, int]) -> Array:
    drawn = np.random.default_rng(shape[1]).integers(0, 256, shape).astype(np.uint8)
    return drawn.view(dtype)


def clipped(array: Array, low: float, high: float) -> Array:
    return np.clip(array, np.float32(low), np.float32(high))


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("columns", COUNTS)
@pytest.mark.parametrize("zero", [None, 3])
def test_what_is_stored_is_dequantised(dtype: type, columns: int, zero: int | None) -> None:
    x, result = stored(dtype, (3, columns)), np.empty((3, columns), np.float32)
    operands, steps = [x, np.array(SCALE)], [(MUL, 1, 0.0, 0.0)]
    wanted = x.astype(np.float32)
    if zero is not None:
        operands.append(np.array(zero, dtype))
        steps.insert(0, (SUB, 2, 0.0, 0.0))
        wanted -= np.float32(zero)
    run(operands, result, steps)
    np.testing.assert_array_equal(result.view(np.int32), (wanted * SCALE).view(np.int32))


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("columns", COUNTS)
@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("nan_is_least", [False, True])
def test_numbers_are_quantised(
    dtype: type, columns: int, zero: int | None, nan_is_least: bool
) -> None:
    x, result = numbers((3, columns)), np.empty((3, columns), dtype)
    low, high = (float(bound) for bound in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    operands, steps = [x, np.array(SCALE)], [(DIV, 1, 0.0, 0.0), (ROUND, 0, 0.0, 0.0)]
    wanted = np.rint(x / SCALE)
    if zero is not None:
        operands.append(np.array(zero, dtype))
        steps.append((ADD, 2, 0.0, 0.0))
        wanted += np.float32(zero)
    if nan_is_least:
        steps.append((THRESHOLDED, 0, low, low))
    run(operands, result, [*steps, (CLIP, 0, low, high)])
    of_nan = low if nan_is_least else 0
    wanted = np.where(np.isnan(wanted), of_nan, clipped(wanted, low, high))
    np.testing.assert_array_equal(result, wanted.astype(dtype))


@pytest.mark.parametrize("columns", COUNTS)
@pytest.mark.parametrize("is_divided", [False, True])
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_numbers_are_rounded(columns: int, is_divided: bool, shift: float) -> None:
    """In place, after a step and before another, as a sum of a residual block is."""
    x, y = numbers((2, columns)), numbers((2, columns))[:, ::-1].copy()
    by = (DIV, 2, 0.0, 0.0) if is_divided else (LINEAR, 0, 32.0, 0.0)
    rounding = [by, (CLIP, 0, -100.0, 155.0), (ROUND, 0, 0.0, 0.0), (LINEAR, 0, SCALE, shift)]
    steps = [(ADD, 1, 0.0, 0.0), *rounding, (MUL, 1, 0.0, 0.0), *rounding]
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = x + y
        for is_last in (False, True):
            wanted = wanted / SCALE if is_divided else wanted * np.float32(32)
            wanted = np.rint(clipped(wanted, -100, 155)) * SCALE
            wanted = wanted + np.float32(shift) if shift else wanted
            wanted = wanted if is_last else wanted * y
    run([x, y, np.array(SCALE)], x, steps)
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("dtype", STORED)
def test_what_is_stored_is_computed_with_and_stored_again(dtype: type) -> None:
    x, result = stored(dtype, (5, 700)), np.empty((5, 700), dtype)
    row, zero = numbers((5, 700)), np.array(3, dtype)
    low, high = (float(bound) for bound in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    steps = [(SUB, 2, 0.0, 0.0), (MUL, 1, 0.0, 0.0), (ADD, 3, 0.0, 0.0), (DIV, 1, 0.0, 0.0)]
    steps += [(ROUND, 0, 0.0, 0.0), (ADD, 2, 0.0, 0.0), (CLIP, 0, low, high)]
    run([x, np.array(SCALE), zero, row], result, steps)
    wanted = (x.astype(np.float32) - np.float32(3)) * SCALE + row
    wanted = np.rint(wanted / SCALE) + np.float32(3)
    wanted = np.where(np.isnan(wanted), 0, clipped(wanted, low, high))
    np.testing.assert_array_equal(result, wanted.astype(dtype))


@pytest.mark.parametrize("dtype", STORED)
def test_gaps_and_scales_of_rows_are_walked_step_by_step(dtype: type) -> None:
    x = stored(dtype, (40, 6)).T
    scales = np.linspace(0.1, 0.9, 6, dtype=np.float32)[:, None] * np.ones(40, np.float32)
    result = np.empty((6, 40), np.float32)
    run([x, scales, np.array(3, dtype)], result, [(SUB, 2, 0.0, 0.0), (MUL, 1, 0.0, 0.0)])
    np.testing.assert_array_equal(result, (x.astype(np.float32) - np.float32(3)) * scales)
