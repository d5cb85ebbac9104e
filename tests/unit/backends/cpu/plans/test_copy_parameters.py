"""Copies between layouts: as few axes as will do, and the native kernel as numpy does it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.copy_parameters import copy_parameters, merged_axes
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.runtime.graph import DType
from exhaustive import drawn
from unit.backends.cpu.kernels.stepping import run_kernel

EXAMPLES = settings(max_examples=drawn(80), derandomize=True)


def test_neighbours_are_joined_where_both_sides_allow() -> None:
    assert merged_axes((2, 3, 4), (12, 4, 1), (12, 4, 1)) == [(24, 1, 1)]
    assert merged_axes((2, 3, 4), (12, 4, 1), (1, 2, 6)) == [(2, 12, 1), (3, 4, 2), (4, 1, 6)]
    assert merged_axes((2, 3, 4), (0, 4, 1), (12, 4, 1)) == [(2, 0, 12), (12, 1, 1)]
    assert merged_axes((1, 1), (5, 3), (1, 1)) == []


def test_layouts_of_different_shapes_are_no_copy() -> None:
    wide, narrow = Layout.plain((2, 3), DType.FLOAT32), Layout.plain((2, 2), DType.FLOAT32)
    with pytest.raises(AssertionError):
        copy_parameters(wide, narrow)


def layout_of(array: np.ndarray) -> Layout:
    strides = [stride // array.itemsize for stride in array.strides]
    return Layout.plain(array.shape, DType.of(array.dtype), strides)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
@pytest.mark.parametrize(
    ("shape", "order"),
    [((70, 90), (1, 0)), ((3, 40, 50), (0, 2, 1)), ((2, 20, 3, 40), (0, 2, 1, 3))],
)
def test_large_transposes(dtype: type, shape: tuple, order: tuple) -> None:
    source = np.arange(np.prod(shape)).astype(dtype).reshape(shape).transpose(order)
    target = np.zeros(source.shape, dtype)
    parameters = copy_parameters(layout_of(source), layout_of(target))
    assert run_kernel(open_engine(), "copy", (source, target), parameters) is None
    np.testing.assert_array_equal(target, source)


@given(data=st.data())
@EXAMPLES
def test_random_copies(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 5))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    dtype = data.draw(st.sampled_from([np.uint8, np.int16, np.float32, np.int64]))
    order = data.draw(st.permutations(range(rank)))
    step = data.draw(st.sampled_from([1, -1]))
    source = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape).transpose(order)
    if rank:
        source = source[::step]
    target = np.zeros([*source.shape, 2], dtype)[..., 0]  # every other element
    parameters = copy_parameters(layout_of(source), layout_of(target))
    assert run_kernel(open_engine(), "copy", (source, target), parameters) is None
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
@pytest.mark.parametrize("count", [1, 5, 40000])
def test_fill(dtype: type, count: int) -> None:
    native = np.zeros(count, dtype)
    word = int.from_bytes(
        np.array(-3).astype(dtype).tobytes().ljust(8, b"\0"), "little", signed=True
    )
    parameters = (native.itemsize, count, word)
    run_kernel(open_engine(), "fill", (native,), parameters)
    assert (native == np.array(-3).astype(dtype)).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("part", [1, 4, 12])
def test_gather(dtype: type, part: int) -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 256, (3, 6, part), dtype=np.uint8)
    indices = rng.integers(-6, 6, 9).astype(dtype)
    native = np.zeros((3, 9, part), np.uint8)
    parameters = (3, 6, 9, part, indices.itemsize)
    assert run_kernel(open_engine(), "gather", (source, indices, native), parameters) is None
    np.testing.assert_array_equal(native, source[:, indices])


def test_gather_tells_an_index_that_is_out_of_range() -> None:
    source, indices = np.zeros((1, 3, 4), np.uint8), np.array([0, 3])
    failure = run_kernel(
        open_engine(), "gather", (source, indices, np.zeros(8, np.uint8)), (1, 3, 2, 4, 8)
    )
    assert failure == (1001, 0)
