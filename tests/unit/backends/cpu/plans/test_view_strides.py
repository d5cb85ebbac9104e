"""Strides of reshaped views: exactly where numpy needs no copy, and then the same elements."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.backends.cpu.plans.view_strides import memory_order, reshaped_strides
from exhaustive import drawn

EXAMPLES = settings(max_examples=drawn(300), derandomize=True)


def in_elements(array: np.ndarray) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


def as_strided(base: np.ndarray, view: np.ndarray, shape, strides) -> np.ndarray:
    start = (view.ctypes.data - base.ctypes.data) // base.itemsize
    flat = base.reshape(-1)[start:]
    steps = [stride * base.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat, shape, steps)


def numpy_can(view: np.ndarray, wanted: list[int]) -> bool:
    try:
        view.reshape(wanted, copy=False)
    except ValueError:
        return False
    return True


@st.composite
def factorisations(draw: st.DrawFn, count: int) -> list[int]:
    """Draw a shape of so many elements."""
    shape = []
    while count > 1:
        factor = draw(st.sampled_from([n for n in range(2, count + 1) if count % n == 0]))
        shape.append(factor)
        count //= factor
        if draw(st.integers(0, 3)) == 0:
            shape.append(1)
    return shape


@given(data=st.data())
@EXAMPLES
def test_views_are_reshaped_where_numpy_can(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    base = np.arange(math.prod(shape) * 2**rank).reshape([2 * dim for dim in shape])
    slices = tuple(
        data.draw(st.sampled_from([slice(0, dim), slice(0, 2 * dim, 2), slice(dim, 2 * dim)]))
        for dim in shape
    )
    order = data.draw(st.permutations(range(rank)))
    view = base[slices].transpose(order)
    if data.draw(st.booleans()):  # a repeated axis
        place = data.draw(st.integers(0, rank))
        repeated = np.expand_dims(view, place)
        view = np.broadcast_to(repeated, (*repeated.shape[:place], 2, *repeated.shape[place + 1 :]))
    wanted = data.draw(factorisations(view.size))
    found = reshaped_strides(view.shape, in_elements(view), wanted)
    if found is None:
        assert not numpy_can(view, wanted)
        return
    np.testing.assert_array_equal(as_strided(base, view, wanted, found), view.reshape(wanted))


@given(data=st.data())
@EXAMPLES
def test_what_numpy_views_is_viewed(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    view = np.arange(math.prod(shape)).reshape(shape).transpose(order)
    wanted = data.draw(factorisations(view.size))
    found = reshaped_strides(view.shape, in_elements(view), wanted)
    assert (found is not None) == numpy_can(view, wanted)


def test_empty_and_single_elements() -> None:
    assert reshaped_strides((0, 3), (3, 1), (3, 0)) is not None
    assert reshaped_strides((), (), (1, 1)) == (1, 1)
    assert reshaped_strides((1, 1), (7, 5), ()) == ()


def test_a_repeated_axis_stays_repeated() -> None:
    assert reshaped_strides((2, 3), (0, 1), (2, 3, 1)) == (0, 1, 1)
    assert reshaped_strides((2, 3), (0, 0), (6,)) == (0,)
    assert reshaped_strides((2, 3), (0, 1), (6,)) is None


def test_memory_order_is_that_of_the_strides() -> None:
    assert memory_order((12, 1, 4)) == [0, 2, 1]
    assert memory_order(()) == []
