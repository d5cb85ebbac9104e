"""The native kernels against their numpy twins, on the same operands and parameters."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.backends.cpu.elementwise_chain import (
    FLOAT_STEPS,
    INTEGER_STEPS,
    chain_axes,
    chain_parameters,
    where_parameters,
)
from aioinfer.backends.cpu.fallback_elementwise import (
    ELEMENTWISE_KERNELS,
    FLOAT_FUNCTIONS,
    INTEGER_FUNCTIONS,
)
from aioinfer.backends.cpu.kernels.reductions import reduction_parameters
from aioinfer.backends.cpu.operand import Layout
from aioinfer.backends.cpu.post_ops import UNARY, PostOp
from aioinfer.runtime.graph import DType
from unit.backends.cpu.native_calls import run_native

EXAMPLES = settings(max_examples=30, deadline=None, derandomize=True)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, 88.0, -88.0, 20.0, 1.0]
LIMITED = {"asin": 1.0, "acos": 1.0, "atanh": 1.0, "sinh": 20.0, "cosh": 20.0, "exp": 20.0}
OUTSIDE = {"log", "sqrt", "acosh", "power", "pow"}


def both(kernel, reads, target, parameters, threads=1):
    """Give what the native kernel and its twin write into copies of the target."""
    made, expected = target.copy(), target.copy()
    run_native(kernel, [*reads, made], parameters, threads)
    data = [array.ctypes.data for array in (*reads, expected)]
    ELEMENTWISE_KERNELS[kernel](data, parameters)
    return made, expected


def layout_of(array) -> Layout:
    strides = [stride // array.itemsize for stride in array.strides]
    return Layout.plain(array.shape, DType.of(array.dtype), strides)


def chain_of(kernel, reads, target, steps):
    layouts = [layout_of(array) for array in (*reads, target)]
    return chain_parameters(kernel, layouts, chain_axes(layouts), steps)


def assert_close(made, expected, bound=2e-6) -> None:
    made, expected = made.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    is_inf = np.isinf(expected)
    np.testing.assert_array_equal(made[is_inf], expected[is_inf])
    rest = np.isfinite(expected)
    np.testing.assert_allclose(made[rest], expected[rest], rtol=bound, atol=3e-7)


@pytest.mark.parametrize("name", FLOAT_STEPS)
def test_a_step_on_floats(name) -> None:
    numbers = np.random.default_rng(0).standard_normal((3, 700)).astype(np.float32) * 4
    other = np.random.default_rng(1).standard_normal((3, 700)).astype(np.float32)
    numbers = np.clip(numbers, -LIMITED.get(name, 9.0), LIMITED.get(name, 9.0))
    numbers = np.abs(numbers) + (name == "acosh") if name in OUTSIDE else numbers
    a, b = {"clip": (-1.0, 2.0), "isinf": (1.0, 1.0), "shrink": (0.5, 0.1), "pow": (2.0, 1.5)}.get(
        name, UNARY[name][1:] if name in UNARY else (0.7, 1.3)
    )
    is_binary = FLOAT_STEPS.index(name) >= FLOAT_STEPS.index("add")
    reads = [numbers, other] if is_binary else [numbers]
    steps = [PostOp(name, a, b, 1 if is_binary else None)]
    target = np.zeros_like(numbers)
    made, expected = both(
        "float_chain", reads, target, chain_of("float_chain", reads, target, steps)
    )
    assert_close(made, expected)


EXACT_AT_THE_EDGES = sorted(
    set(FLOAT_STEPS)
    - {"mod", "fmod", "pow", "power", "tan", "gelu_tanh", "mish", "softplus", "log"}
)


@pytest.mark.parametrize("name", EXACT_AT_THE_EDGES)
def test_a_step_on_what_is_no_ordinary_number(name) -> None:
    numbers = np.array(SPECIAL, np.float32)
    others = np.array(SPECIAL[::-1], np.float32)
    is_binary = FLOAT_STEPS.index(name) >= FLOAT_STEPS.index("add")
    reads = [numbers, others] if is_binary else [numbers]
    a, b = {"clip": (-1.0, 2.0)}.get(name, UNARY[name][1:] if name in UNARY else (1.0, 1.0))
    target = np.zeros_like(numbers)
    steps = [PostOp(name, a, b, 1 if is_binary else None)]
    made, expected = both(
        "float_chain", reads, target, chain_of("float_chain", reads, target, steps)
    )
    assert_close(made, expected)


@pytest.mark.parametrize("factor", [-1.0, 1.0, 0.5])
def test_a_product_keeps_the_sign_of_zero(factor) -> None:
    numbers = np.array([0.0, -0.0, 3.0, -3.0, np.inf, np.nan], np.float32)
    target = np.ones_like(numbers)
    parameters = chain_of("float_chain", [numbers], target, [PostOp("linear", factor, 0.0)])
    for found in both("float_chain", [numbers], target, parameters):
        np.testing.assert_array_equal(found, numbers * factor)
        np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(numbers * factor)[:-1])


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 1.0, 2.0, 3.0, -0.25])
def test_a_power_with_a_constant(exponent) -> None:
    numbers = np.array([np.inf, -np.inf, np.nan, 0.0, 0.25, 2.0, 3.5, 1e10], np.float32)
    target = np.zeros_like(numbers)
    steps = [PostOp("pow", 1.0, exponent)]
    parameters = chain_of("float_chain", [numbers], target, steps)
    assert_close(*both("float_chain", [numbers], target, parameters))


@pytest.mark.parametrize("name", INTEGER_STEPS)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8, np.uint32, np.int16])
def test_a_step_on_integers(name, dtype) -> None:
    generator = np.random.default_rng(2)
    limits = np.iinfo(dtype)
    numbers = generator.integers(limits.min, limits.max, 1100, dtype, endpoint=True)
    other = generator.integers(0, 5, 1100).astype(dtype)
    other[:50] = numbers[:50]
    is_binary = INTEGER_STEPS.index(name) >= INTEGER_STEPS.index("add")
    if name == "power":
        numbers, other = numbers % 7, other % 5
    if name in ("mod", "fmod") and dtype == np.int64:
        other = np.where(other == 0, 3, other)  # numpy's own fmod fails on the smallest number
    reads = [numbers, other] if is_binary else [numbers]
    steps = [PostOp(name, operand=1 if is_binary else None)]
    target = np.zeros_like(numbers)
    parameters = chain_of("integer_chain", reads, target, steps)
    made, expected = both("integer_chain", reads, target, parameters)
    np.testing.assert_array_equal(made, expected)


NUMERIC = [
    np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.bool_, np.uint8, np.int8,
    np.uint16, np.int16, np.uint32, np.int32, np.int64,
]  # fmt: skip


@pytest.mark.parametrize("wanted", NUMERIC)
@pytest.mark.parametrize("given", NUMERIC[:3])
def test_a_chain_without_steps_converts_floats(given, wanted) -> None:
    numbers = np.linspace(0, 100, 1500).astype(given)
    is_signed = np.dtype(wanted).kind in "fV" or np.dtype(wanted).name.startswith("int")
    numbers = -numbers if is_signed else numbers
    target = np.zeros(numbers.shape, wanted)
    made, expected = both(
        "float_chain", [numbers], target, chain_of("float_chain", [numbers], target, [])
    )
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("wanted", NUMERIC)
@pytest.mark.parametrize("given", NUMERIC[4:])
def test_a_chain_without_steps_converts_integers(given, wanted) -> None:
    generator = np.random.default_rng(3)
    if given is np.bool_:
        numbers = generator.random(900) > 0.5
    else:
        limits = np.iinfo(given)
        numbers = generator.integers(limits.min, limits.max, 900, given, endpoint=True)
    target = np.zeros(numbers.shape, wanted)
    made, expected = both(
        "integer_chain", [numbers], target, chain_of("integer_chain", [numbers], target, [])
    )
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("narrow", [np.float16, ml_dtypes.bfloat16])
def test_every_narrow_float_is_read_and_written_as_numpy_does(narrow) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(narrow)
    wide = np.zeros(every.shape, np.float32)
    made, _ = both("float_chain", [every], wide, chain_of("float_chain", [every], wide, []))
    np.testing.assert_array_equal(made, every.astype(np.float32))
    with np.errstate(all="ignore"):
        between = np.concatenate(
            [made[:-1] + (made[1:] - made[:-1]) / 2, made * np.float32(1.0001)]
        )
    back = np.zeros(between.shape, narrow)
    again, _ = both("float_chain", [between], back, chain_of("float_chain", [between], back, []))
    with np.errstate(all="ignore"):
        expected = between.astype(narrow).astype(np.float32)
    np.testing.assert_array_equal(again.astype(np.float32), expected)


@st.composite
def broadcasts(draw):
    """Draw a result's shape, and for three operands what of it they repeat and how they lie."""
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    if draw(st.booleans()):
        shape = (*shape, draw(st.sampled_from([511, 512, 513, 1025])))
    operands = []
    for _ in range(3):
        part = [n if draw(st.booleans()) else 1 for n in shape]
        operands.append((part[draw(st.integers(0, len(part))) :], draw(st.booleans())))
    return shape, operands, draw(st.sampled_from([1, 2]))


def operand(seed, shape, is_reversed, dtype=np.float32):
    """Draw small whole numbers; reversed, the first axis is the innermost one."""
    numbers = np.asarray(np.random.default_rng(seed).integers(-9, 9, shape), dtype)
    return np.asarray(numbers, order="F" if is_reversed else "C")


@EXAMPLES
@given(broadcasts())
def test_chains_broadcast(drawn) -> None:
    shape, operands, threads = drawn
    reads = [operand(seed, *item) for seed, item in enumerate(operands)]
    target = np.zeros(shape, np.float32)
    steps = [PostOp("mul", operand=1), PostOp("linear", 2.0, 1.0)]
    steps += [PostOp("sub", operand=2), PostOp("relu")]
    parameters = chain_of("float_chain", reads, target, steps)
    made, expected = both("float_chain", reads, target, parameters, threads)
    np.testing.assert_array_equal(made, expected)
    wanted = np.maximum(reads[0] * reads[1] * 2 + 1 - reads[2], 0)
    np.testing.assert_array_equal(made, np.broadcast_to(wanted, shape))


@EXAMPLES
@given(broadcasts(), st.sampled_from([np.uint8, np.uint16, np.float32, np.int64]))
def test_where_broadcasts(drawn, dtype) -> None:
    shape, operands, threads = drawn
    condition = np.asarray(operand(7, *operands[0], np.int8) > 0)
    reads = [condition, *(operand(seed, *item, dtype) for seed, item in enumerate(operands[1:]))]
    target = np.zeros(shape, dtype)
    layouts = [layout_of(array) for array in (*reads, target)]
    parameters = where_parameters(layouts, chain_axes(layouts))
    made, expected = both("where", reads, target, parameters, threads)
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(made, np.broadcast_to(np.where(*reads), shape))


def test_a_chain_may_write_over_what_it_begins_with() -> None:
    numbers = np.arange(5000, dtype=np.float32)
    parameters = chain_of("float_chain", [numbers], numbers, [PostOp("linear", 2.0, 1.0)])
    run_native("float_chain", [numbers, numbers], parameters)
    np.testing.assert_array_equal(numbers, np.arange(5000) * 2 + 1)


def test_an_unknown_step_is_a_damaged_table() -> None:
    numbers = np.zeros(3, np.float32)
    parameters = chain_of("float_chain", [numbers], numbers, [PostOp("abs")])
    parameters[-4] = 1000
    with pytest.raises(AssertionError):
        run_native("float_chain", [numbers, numbers], parameters)


@EXAMPLES
@given(
    st.lists(st.integers(0, 6), max_size=4),
    st.sets(st.integers(0, 3)),
    st.integers(0, 9),
    st.booleans(),
    st.sampled_from([np.float32, ml_dtypes.bfloat16]),
)
def test_reductions(shape, axes, kind, is_reversed, dtype) -> None:
    source = np.asarray(abs(operand(5, shape, is_reversed)) + np.float32(0.5), dtype)
    kept = [1 if axis in axes else length for axis, length in enumerate(shape)]
    target = np.zeros(kept, np.float32)
    if not target.size:
        return
    parameters = reduction_parameters(kind, layout_of(source), layout_of(target))
    assert_close(*both("reduce", [source], target, parameters))


@pytest.mark.parametrize("kind", range(10))
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_long_reductions(kind, axis, threads) -> None:
    source = np.random.default_rng(0).random((1100, 1300), np.float32) * 0.01 + 0.99
    target = np.zeros(
        [1 if index == axis else n for index, n in enumerate(source.shape)], np.float32
    )
    parameters = reduction_parameters(kind, layout_of(source), layout_of(target))
    assert_close(*both("reduce", [source], target, parameters, threads))


def test_reductions_keep_nan_and_infinities() -> None:
    source = np.array([[1, np.nan], [np.inf, -np.inf], [np.inf, 1], [-np.inf, -np.inf]], np.float32)
    for kind in range(10):
        target = np.zeros((4, 1), np.float32)
        parameters = reduction_parameters(kind, layout_of(source), layout_of(target))
        assert_close(*both("reduce", [source], target, parameters))


def test_twins_have_every_step() -> None:
    assert tuple(FLOAT_FUNCTIONS) == FLOAT_STEPS
    assert tuple(INTEGER_FUNCTIONS) == INTEGER_STEPS
