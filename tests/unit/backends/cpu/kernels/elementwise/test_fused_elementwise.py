"""Layouts that fused groups walk: blocked ones, as convolutions of older CPUs have them."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p

import numpy as np
import pytest

from aioinfer.backends.cpu.kernels.normalization.reductions import reduction_parameters
from aioinfer.backends.cpu.onednn.bindings import Desc, open_engine
from aioinfer.backends.cpu.onednn.post_ops import PostOp
from aioinfer.backends.cpu.plans.elementwise_parameters import (
    elementwise_axes,
    elementwise_parameters,
)
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.runtime.graph import DType
from unit.backends.cpu.native_calls import run_native

CHANNELS_BY_16 = 78  # dnnl_aBcd16b
F32 = DType.FLOAT32


def blocked(*dims) -> Layout:
    engine, made = open_engine(), c_void_p()
    lengths = (c_int64 * 12)(*dims)
    arguments = (c_int(len(dims)), lengths, c_int(3), c_int(CHANNELS_BY_16))
    engine.check("dnnl_memory_desc_create_with_tag", byref(made), *arguments)
    assert made.value is not None
    return Layout.of(Desc(engine, made.value))


def in_blocks(array):
    """Order an array as aBcd16b does."""
    n, c, h, w = array.shape
    return np.ascontiguousarray(array.reshape(n, c // 16, 16, h, w).transpose(0, 1, 3, 4, 2))


def numbers(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def test_padding_of_blocks_is_no_place_to_walk() -> None:
    assert elementwise_axes([blocked(2, 24, 5, 5)]) is None
    assert blocked(2, 24, 5, 5).blocked_strides is None


def test_a_dense_blocked_group_is_one_axis() -> None:
    (axis,) = elementwise_axes([blocked(2, 32, 5, 5)] * 2) or ()
    assert (axis.length, axis.strides) == (1600, (4, 4))


@pytest.mark.parametrize(
    "shape", [(2, 32, 5, 5), (32, 1, 1), (2, 32, 1, 1), (2, 1, 5, 5), (5,), ()]
)
def test_what_broadcasts_to_a_blocked_result(shape) -> None:
    a, b = numbers(2, 32, 5, 5), numbers(*shape, seed=1)
    layouts = [blocked(*a.shape), Layout.plain(shape, F32), blocked(*a.shape)]
    parameters = elementwise_parameters(
        "float_elementwise", layouts, elementwise_axes(layouts) or (), [PostOp("sub", operand=1)]
    )
    source, made = in_blocks(a), np.zeros(a.size, np.float32)
    run_native("float_elementwise", [source, b, made], parameters)
    np.testing.assert_array_equal(made, in_blocks(a - b).reshape(-1))


def test_a_blocked_operand_of_a_plain_result() -> None:
    a, b = numbers(2, 32, 5, 5), numbers(1, 32, 1, 1, seed=1)
    layouts = [Layout.plain(a.shape, F32), blocked(1, 32, 1, 1), Layout.plain(a.shape, F32)]
    parameters = elementwise_parameters(
        "float_elementwise", layouts, elementwise_axes(layouts) or (), [PostOp("mul", operand=1)]
    )
    made = np.zeros_like(a)
    run_native("float_elementwise", [a, in_blocks(b), made], parameters)
    np.testing.assert_array_equal(made, a * b)


@pytest.mark.parametrize("axes", [(1,), (2, 3), (0, 2), (0, 1, 2, 3)])
def test_reductions_of_blocks(axes) -> None:
    x = numbers(2, 32, 5, 5)
    wanted = x.max(axis=axes, keepdims=True)
    parameters = reduction_parameters(2, blocked(*x.shape), Layout.plain(wanted.shape, F32))
    made = np.zeros_like(wanted)
    run_native("reduce", [in_blocks(x), made], parameters)
    np.testing.assert_array_equal(made, wanted)
