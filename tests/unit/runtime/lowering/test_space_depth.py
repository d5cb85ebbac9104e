"""DepthToSpace and SpaceToDepth against what ONNX says of them, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.lowering.space_depth import block_transpose


def moved(op_type: str, x: np.ndarray[Any, Any], **attributes: Any) -> np.ndarray[Any, Any]:
    node = Node(op_type, [Value("x")], [Value("y")], {"blocksize": 2, **attributes}, name="n")
    lengths, order = block_transpose(node, x.shape)
    return x.reshape(lengths).transpose(order)


@pytest.mark.parametrize(("mode", "step"), [("DCR", 3), (b"CRD", 1)])
def test_depth_to_space(mode: str | bytes, step: int) -> None:
    x = np.arange(2 * 12 * 4 * 5).reshape(2, 12, 4, 5)
    found = moved("DepthToSpace", x, mode=mode).reshape(2, 3, 8, 10)
    for channel in range(3):
        for row, column in np.ndindex(2, 2):
            block = row * 2 + column
            source = channel + 3 * block if step == 3 else channel * 4 + block
            np.testing.assert_array_equal(found[:, channel, row::2, column::2], x[:, source])


def test_space_to_depth_undoes_it() -> None:
    x = np.arange(2 * 12 * 4 * 5).reshape(2, 12, 4, 5)
    there = moved("DepthToSpace", x).reshape(2, 3, 8, 10)
    np.testing.assert_array_equal(moved("SpaceToDepth", there).reshape(x.shape), x)
