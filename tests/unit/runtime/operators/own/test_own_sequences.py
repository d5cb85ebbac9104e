"""Sequences: items by position, with the bounds that onnx.reference leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator

ITEMS = [np.array(number) for number in range(3)]


def evaluate(op_type: str, *inputs: Any, **attributes: Any) -> Any:
    names = [None if given is None else Value(f"x{at}") for at, given in enumerate(inputs)]
    node = Node(op_type, names, [Value("y")], attributes, name="n")
    return make_operator(node, {"": 24})(*inputs)[0]


def numbers(items: list[np.ndarray]) -> list[Any]:
    return [item.tolist() for item in items]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("position", range(-3, 4))
def test_an_item_is_put_before_that_at_a_position(position: int, dtype: type) -> None:
    made = evaluate("SequenceInsert", ITEMS, np.array(9), np.array(position, dtype))
    wanted: list[Any] = [0, 1, 2]
    wanted.insert(position, 9)
    assert numbers(made) == wanted
    assert numbers(ITEMS) == [0, 1, 2]


def test_an_item_is_put_at_the_end_where_no_position_says_else() -> None:
    assert numbers(evaluate("SequenceInsert", ITEMS, np.array(9))) == [0, 1, 2, 9]


@pytest.mark.parametrize("position", [None, np.array(0)])
def test_the_first_item_is_put_into_an_empty_sequence(position: np.ndarray | None) -> None:
    assert numbers(evaluate("SequenceInsert", [], np.array(9), position)) == [9]


@pytest.mark.parametrize("position", range(-3, 3))
def test_an_item_is_taken_and_left_out(position: int) -> None:
    place = np.array(position)
    assert evaluate("SequenceAt", ITEMS, place) == ITEMS[position]
    left = [0, 1, 2]
    del left[position]
    assert numbers(evaluate("SequenceErase", ITEMS, place)) == left


def test_the_last_item_is_left_out_where_no_position_says_else() -> None:
    assert numbers(evaluate("SequenceErase", ITEMS)) == [0, 1]


@pytest.mark.parametrize(
    ("op_type", "inputs", "position"),
    [
        ("SequenceInsert", [ITEMS, np.array(9)], 4),
        ("SequenceInsert", [ITEMS, np.array(9)], -4),
        ("SequenceInsert", [[], np.array(9)], -1),
        ("SequenceAt", [ITEMS], 3),
        ("SequenceAt", [ITEMS], -4),
        ("SequenceErase", [ITEMS], 3),
        ("SequenceErase", [ITEMS], 2**40),
        ("SequenceErase", [[]], -1),
    ],
)
def test_positions_outside_are_refused(op_type: str, inputs: list[Any], position: int) -> None:
    with pytest.raises(IndexError, match=f"position {position} is outside a sequence"):
        evaluate(op_type, *inputs, np.array(position))


def test_nothing_is_left_out_of_an_empty_sequence() -> None:
    with pytest.raises(IndexError):
        evaluate("SequenceErase", [])


def test_two_positions_are_none() -> None:
    with pytest.raises(ValueError, match="2 positions are given"):
        evaluate("SequenceAt", ITEMS, np.array([0, 1]))


X = np.arange(10).reshape(2, 5)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(
    ("split", "lengths"),
    [(np.array(2), [2, 2, 1]), (np.array(9), [5]), (np.array([1, 0, 4]), [1, 0, 4])],
)
def test_a_tensor_is_split(split: np.ndarray, lengths: list[int], axis: int) -> None:
    made = evaluate("SplitToSequence", X, split, axis=axis)
    assert [item.shape for item in made] == [(2, length) for length in lengths]
    np.testing.assert_array_equal(np.concatenate(made, axis=1), X)


@pytest.mark.parametrize(("keepdims", "shape"), [(0, (5,)), (1, (1, 5))])
def test_a_tensor_is_split_into_single_elements(keepdims: int, shape: tuple[int, ...]) -> None:
    made = evaluate("SplitToSequence", X, keepdims=keepdims)
    assert [item.shape for item in made] == [shape, shape]
    np.testing.assert_array_equal(np.concatenate(made).reshape(X.shape), X)


def test_given_lengths_keep_the_axis() -> None:
    (item,) = evaluate("SplitToSequence", X, np.array([2]), keepdims=0)
    assert item.shape == X.shape


@pytest.mark.parametrize(
    "split", [np.array(0), np.array(-2), np.array([2, 2]), np.array([7, -2]), np.array([[5]])]
)
def test_lengths_that_are_not_those_of_the_axis_are_refused(split: np.ndarray) -> None:
    with pytest.raises(ValueError, match="length"):
        evaluate("SplitToSequence", X, split, axis=1)


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError):
        evaluate("SplitToSequence", X, axis=2)
