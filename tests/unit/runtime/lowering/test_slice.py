"""Where a Slice begins along each axis."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.lowering.slice import slice_box


def _slice(*numbers: int | None) -> Node:
    """Make a node with start, end, axis and step; None is an input that is left out."""
    inputs = [
        None if number is None else Value(f"i{index}", None, np.array([number], np.int64))
        for index, number in enumerate(numbers)
    ]
    return Node("Slice", [Value("x"), *inputs], [Value("y")], name="slice")


@pytest.mark.parametrize(
    ("numbers", "begin", "step"),
    [
        ((1, 3), [1, 0], [1, 1]),
        ((1, 3, None, 2), [1, 0], [2, 1]),
        ((-2, 9, -1, 1), [0, 3], [1, 1]),
        ((9, 10, 0), [4, 0], [1, 1]),
        ((-9, 2, 0), [0, 0], [1, 1]),
        ((9, 0, 1, -1), [0, 4], [1, -1]),
        ((-9, -20, 1, -2), [0, 0], [1, -2]),
    ],
)
def test_begin_and_step(numbers: tuple[int | None, ...], begin: list[int], step: list[int]) -> None:
    assert slice_box(_slice(*numbers), (4, 5)) == (begin, step)
