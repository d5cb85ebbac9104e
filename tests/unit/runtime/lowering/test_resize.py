from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.graph import Node
from aioinfer.runtime.lowering.resize import find_unknown_setting, indices_of, resamplings
from onnx_text import parse

SHAPE, WANTED = (1, 2, 4, 6), (1, 2, 8, 9)


def node_of(attributes: str = "", *, has_sizes: bool = False) -> Node:
    """Make a node with scales for all axes, or sizes for two."""
    constant = "int64[2] z = {9, 8}" if has_sizes else "float[4] s = {1, 1, 2, 1.5}"
    inputs = "x, , , z" if has_sizes else "x, , s"
    text = f"g (float[1,2,4,6] x) => (float[a,b,c,d] y) <{constant}>"
    return parse(f"{text} {{ y = Resize{attributes}({inputs}) }}").node("Resize_0")


def test_scales_are_those_of_the_node() -> None:
    axes = resamplings(node_of(), SHAPE, WANTED)
    assert {axis: float(item.scale) for axis, item in axes.items()} == {0: 1, 1: 1, 2: 2, 3: 1.5}
    np.testing.assert_array_equal(indices_of(node_of(), axes[2]), [0, 0, 1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize(
    ("policy", "scales", "wanted"),
    [
        ("stretch", [1.5, 2], WANTED),
        ("not_larger", [1.5, 1.5], (*WANTED[:2], 6, 9)),
        ("not_smaller", [2, 2], (*WANTED[:2], 8, 12)),
    ],
)
def test_sizes_of_some_axes_follow_a_policy(
    policy: str, scales: list[float], wanted: tuple[int, ...]
) -> None:
    node = node_of(f'<axes=[3,2], keep_aspect_ratio_policy="{policy}">', has_sizes=True)
    axes = resamplings(node, SHAPE, wanted)
    assert list(axes) == [3, 2]
    assert [float(item.scale) for item in axes.values()] == scales


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("", "None"),
        ("<antialias=1>", "nearest neighbours have no antialiasing"),
    ],
)
def test_a_setting_without_a_meaning_is_named(attributes: str, reason: str) -> None:
    assert reason in str(find_unknown_setting(node_of(attributes)))
