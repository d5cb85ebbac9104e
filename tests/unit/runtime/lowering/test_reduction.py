"""Which axes a reduction takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.lowering.reduction import reduced_axes


@pytest.mark.parametrize(
    ("given", "attributes", "rank", "wanted"),
    [
        (None, {}, 3, {0, 1, 2}),
        ([], {}, 3, {0, 1, 2}),
        ([0, -1], {}, 3, {0, 2}),
        (None, {"axes": [-2]}, 3, {1}),
        ([], {"noop_with_empty_axes": 1}, 3, set()),
        ([1], {"noop_with_empty_axes": 1}, 3, {1}),
        (None, {}, 0, set()),
        ([0], {}, 0, {0}),
    ],
)
def test_axes(given: list[int] | None, attributes: Any, rank: int, wanted: set[int]) -> None:
    axes = [] if given is None else [Value("a", None, np.array(given, np.int64))]
    node = Node("ReduceSum", [Value("x"), *axes], [Value("y")], attributes, name="sum")
    assert reduced_axes(node, rank) == wanted
