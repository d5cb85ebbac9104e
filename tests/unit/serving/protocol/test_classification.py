"""Outputs as classes: order, ties, odd numbers, and shapes without elements."""

import ml_dtypes
import numpy as np
import pytest

from aioinfer.serving.protocol.call import Requested
from aioinfer.serving.protocol.classification import class_labels
from aioinfer.serving.protocol.refusal import RefusedError


def labels(array: np.ndarray, count: int) -> object:
    return class_labels(array, Requested("y", class_count=count)).tolist()


def test_whole_numbers_of_64_bits_are_compared_as_they_are() -> None:
    big = 1 << 62
    assert labels(np.int64([big, big + 1, -(1 << 63)]), 3) == [
        f"{big + 1}:1",
        f"{big}:0",
        f"{-(1 << 63)}:2",
    ]
    assert labels(np.uint64([0, (1 << 64) - 1]), 1) == [f"{(1 << 64) - 1}:1"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, np.float64, ml_dtypes.bfloat16])
def test_equals_come_in_order_and_rows_by_themselves(dtype: type) -> None:
    made = class_labels(
        np.array([[1, 2, 2], [3, 3, 3]]).astype(dtype), Requested("y", class_count=2)
    )
    assert [text.partition(":")[2] for text in made.ravel()] == ["1", "2", "0", "1"]


def test_what_is_no_number_comes_last() -> None:
    array = np.float32([np.nan, -np.inf, 1, np.inf])
    assert labels(array, 9) == ["inf:3", "1.000000:2", "-inf:1", "nan:0"]


@pytest.mark.parametrize(
    ("shape", "told"), [((0,), (0,)), ((0, 3), (0, 2)), ((2, 0), (2, 0)), ((0, 0), (0, 0))]
)
def test_shapes_without_elements_keep_their_rows(
    shape: tuple[int, ...], told: tuple[int, ...]
) -> None:
    made = class_labels(np.zeros(shape, np.float32), Requested("y", class_count=2))
    assert made.shape == told


def test_rows_of_more_dimensions_are_flat() -> None:
    array = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    assert labels(array, 1) == [["3:3"], ["7:3"]]


@pytest.mark.parametrize(
    "array", [np.array(1.0), np.array([True]), np.array(["a"], object), np.array([1j])]
)
def test_what_has_no_classes_is_refused(array: np.ndarray) -> None:
    with pytest.raises(RefusedError, match=r"^y\.parameters\.classification: only outputs of"):
        labels(array, 1)


def test_more_texts_than_are_worth_it_are_refused() -> None:
    with pytest.raises(RefusedError, match="2000000 classes; at most 1000000 are returned"):
        labels(np.zeros((2, 1_000_000), np.int8), 1 << 40)
