"""Windows that oneDNN does not slide."""

import pytest

from aioinfer.backends.cpu.kernels.windows.onednn_windows import find_bad_window
from aioinfer.runtime.graph import DType, Node, TensorType, Value

pytestmark = pytest.mark.needs_no_library


def node_of(rank=4, **attributes) -> Node:
    source = Value("x", TensorType(DType.FLOAT32, (1,) * rank))
    return Node("MaxPool", [source], [Value("y")], attributes, name="node")


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (node_of(rank=4), None),
        (node_of(rank=6), "not over 4"),
        (node_of(rank=2), "not over 0"),
        (node_of(kernel_shape=[1, 1, 1, 1]), "not over 4"),
        (node_of(pads=[0, -1, 0, 0]), "negative"),
        (node_of(pads=[0, 1 << 24, 0, 0], strides=[1 << 24, 1]), None),
        (node_of(pads=[0, 0, 0, 1 + (1 << 24)]), "up to 16777216 elements"),
        (node_of(strides=[1, 1 << 62]), "up to 16777216 elements"),
        (node_of(kernel_shape=[2, 1 << 25]), "up to 16777216 elements"),
        (node_of(kernel_shape=[1 << 20, 1], dilations=[1 << 20, 1]), "up to 16777216 elements"),
        (node_of(dilations=[1 << 63, 1]), "up to 16777216 elements"),  # with the weights' window
    ],
)
def test_what_cannot_slide(node, reason) -> None:
    found = find_bad_window(node, node.inputs[0])
    assert (found is None) if reason is None else (reason in str(found))


def test_an_unknown_rank_is_refused() -> None:
    source = Value("x", TensorType(DType.FLOAT32, None))
    node = Node("Conv", [source], [Value("y")], {}, name="node")
    assert "rank" in str(find_bad_window(node, source))
