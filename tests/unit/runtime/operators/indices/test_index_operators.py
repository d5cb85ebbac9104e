"""Indices and lengths in the data: what they mean, and what lies outside of their range."""

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.operators.indices.index_operators import one_hot, reverse_sequence

VALUES = np.array([-1, 5], np.float32)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_the_row_of_an_index_out_of_range_is_all_off(dtype: type) -> None:
    indices = np.array([0, 2, -1, -3, 3, -4, 2**30, -(2**30)], dtype)
    rows = one_hot(indices, np.array(3), VALUES)
    assert rows.dtype == np.float32
    assert [np.flatnonzero(row == 5).tolist() for row in rows] == [[0], [2], [2], [0], *[[]] * 4]
    assert set(rows[4:].ravel().tolist()) == {-1.0}


def test_an_index_beyond_64_bits_is_out_of_range() -> None:
    for indices in (np.array([2**64 - 1], np.uint64), np.array([np.nan, np.inf], np.float32)):
        assert (one_hot(indices, np.array(4), VALUES) == -1).all()


def test_the_new_axis_may_be_any() -> None:
    indices = np.array([[0, 1], [2, 0]])
    last = one_hot(indices, np.array([3]), np.array([0, 1]))
    assert np.array_equal(last, np.eye(3, dtype=np.int64)[indices])
    assert np.array_equal(
        one_hot(indices, np.array(3), np.array([0, 1]), axis=0), last.transpose(2, 0, 1)
    )
    assert np.array_equal(
        one_hot(indices, np.array(3), np.array([0, 1]), axis=-2), last.transpose(0, 2, 1)
    )


@pytest.mark.parametrize("values", [np.eye(2), np.zeros(3), np.array(1)])
def test_values_of_another_shape_than_off_and_on_are_refused(values: Any) -> None:
    with pytest.raises(ValueError, match=r"which are off and on, are of shape .* not \(2,\)"):
        one_hot(np.array([0, 1]), np.array(3), values)


def test_sequences_are_reversed_up_to_their_lengths() -> None:
    x = np.arange(12).reshape(3, 4)
    turned = reverse_sequence(x, np.array([0, 1, 4]), batch_axis=0, time_axis=1)
    assert turned.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [11, 10, 9, 8]]
    assert np.array_equal(reverse_sequence(x.T, np.array([0, 1, 4])), turned.T)
    deep = np.arange(24).reshape(3, 4, 2)
    assert np.array_equal(
        reverse_sequence(deep, np.array([0, 1, 4]), batch_axis=0, time_axis=1)[2], deep[2, ::-1]
    )


@pytest.mark.parametrize("length", [-1, 5, 2**40])
def test_a_length_beyond_the_axis_is_an_index_out_of_range(length: int) -> None:
    with pytest.raises(IndexError, match=f"length {length} does not fit axis 1, of length 4"):
        reverse_sequence(np.zeros((2, 4)), np.array([1, length]), batch_axis=0, time_axis=1)
