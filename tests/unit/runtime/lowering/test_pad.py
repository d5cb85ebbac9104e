"""What a Pad node says of each axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.lowering.pad import (
    find_unknown_mode,
    is_filling,
    kept_lengths,
    pads_of,
    repeated_indices,
)


def pad(pads: list[int], axes: list[int] | None = None, **attributes: Any) -> Node:
    inputs: list[Value | None] = [Value("x"), Value("p", None, np.array(pads)), None]
    if axes is not None:
        inputs.append(Value("a", None, np.array(axes)))
    return Node("Pad", inputs, [Value("y")], attributes, name="pad")


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (pad([1, 2, 3, 4]), [(1, 3), (2, 4)]),
        (pad([1, -2], [-1]), [(0, 0), (1, -2)]),
        (pad([1, 2, 3, 4], [1, 0]), [(2, 4), (1, 3)]),
        (pad([], []), [(0, 0), (0, 0)]),
    ],
)
def test_pads_of_each_axis(node: Node, wanted: list[tuple[int, int]]) -> None:
    assert pads_of(node, 2) == wanted


def test_negative_pads_take_away_what_there_is() -> None:
    assert kept_lengths([5, 5, 2], [(1, 2), (-1, -2), (-1, -2)]) == [5, 2, 0]


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("sides", [(0, 0), (2, 3), (7, 6)])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_repeated_elements_are_those_of_numpy(mode: Any, sides: Any, length: int) -> None:
    found = repeated_indices(pad([], mode=mode.encode()), length, sides)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.pad(np.arange(length), sides, mode=mode))


def test_what_is_filled_and_what_is_not_known() -> None:
    assert is_filling(pad([]))
    assert not is_filling(pad([], mode="wrap"))
    assert find_unknown_mode(pad([])) is None
    assert find_unknown_mode(pad([], mode="edge")) is None
    reason = "Pad has mode in ['constant', 'edge', 'reflect', 'wrap'], not 'melt'"
    assert find_unknown_mode(pad([], mode="melt")) == reason
