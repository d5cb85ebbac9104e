"""Windows read from attributes: defaults, auto_pad, and the padding that results really read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.backends.cpu.kernels.windows import Window, find_bad_window, window_of
from aioinfer.runtime.graph import DType, Node, TensorType, Value

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)
pytestmark = pytest.mark.needs_no_library


def node_of(rank=4, **attributes) -> Node:
    source = Value("x", TensorType(DType.FLOAT32, (1,) * rank))
    return Node("MaxPool", [source], [Value("y")], attributes, name="node")


def test_what_is_not_given_is_dense_and_without_padding() -> None:
    window = window_of(node_of(), (3, 2), (8, 8))
    assert window == Window((3, 2), (1, 1), (1, 1), (0, 0), (0, 0))


@pytest.mark.parametrize(
    ("auto", "begin", "end"),
    [
        ("NOTSET", (1, 0), (2, 3)),
        ("VALID", (0, 0), (0, 0)),
        ("SAME_UPPER", (1, 0), (2, 1)),
        (b"SAME_LOWER", (2, 1), (1, 0)),
    ],
)
def test_padding(auto, begin, end) -> None:
    node = node_of(auto_pad=auto, pads=[1, 0, 2, 3], strides=[1, 2])
    window = window_of(node, (4, 3), (6, 6))
    assert (window.pads_begin, window.pads_end) == (begin, end)


def test_positions_count_from_the_input() -> None:
    window = Window((3,), (2,), (2,), (1,), (0,))
    assert list(window.positions(0, 0)) == [-1, 1, 3]
    assert list(window.positions(0, 2)) == [3, 5, 7]


@EXAMPLES
@given(*[st.integers(1, 4)] * 3, st.integers(0, 3), st.integers(0, 3), st.integers(0, 8))
def test_fitted_padding_gives_the_same_count(kernel, stride, dilation, begin, end, more) -> None:
    window = Window((kernel,), (stride,), (dilation,), (begin,), (end,))
    length = max(1, window.reach(0) - begin - end) + more
    count = (length + begin + end - window.reach(0)) // stride + 1
    (fitted,) = window.fitted((length,), (count,)).pads_end
    assert 0 <= fitted <= end
    assert (length + begin + fitted - window.reach(0)) // stride + 1 == count


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (node_of(rank=4), None),
        (node_of(rank=6), "not over 4"),
        (node_of(rank=2), "not over 0"),
        (node_of(kernel_shape=[1, 1, 1, 1]), "not over 4"),
        (node_of(pads=[0, -1, 0, 0]), "negative"),
    ],
)
def test_what_cannot_slide(node, reason) -> None:
    found = find_bad_window(node, node.inputs[0])
    assert (found is None) if reason is None else (reason in str(found))


def test_an_unknown_rank_is_refused() -> None:
    source = Value("x", TensorType(DType.FLOAT32, None))
    node = Node("Conv", [source], [Value("y")], {}, name="node")
    assert "rank" in str(find_bad_window(node, source))
