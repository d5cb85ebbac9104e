"""Windows read from attributes: defaults, auto_pad, and the padding that results really read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.lowering.window import Window, transposed_window, window_of
from exhaustive import drawn

EXAMPLES = settings(max_examples=drawn(100), derandomize=True)


def node_of(**attributes: Any) -> Node:
    return Node("Conv", [Value("x")], [Value("y")], attributes, name="node")


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
def test_padding(auto: str | bytes, begin: tuple[int, ...], end: tuple[int, ...]) -> None:
    node = node_of(auto_pad=auto, pads=[1, 0, 2, 3], strides=[1, 2])
    window = window_of(node, (4, 3), (6, 6))
    assert (window.pads_begin, window.pads_end) == (begin, end)


@pytest.mark.parametrize(
    ("window", "single"),
    [
        (Window((1, 1), (1, 1), (2, 1), (0, 0), (0, 0)), True),
        (Window((1, 2), (1, 1), (1, 1), (0, 0), (0, 0)), False),
        (Window((1, 1), (1, 2), (1, 1), (0, 0), (0, 0)), False),
        (Window((1, 1), (1, 1), (1, 1), (0, 0), (0, 1)), False),
    ],
)
def test_a_window_of_one_element(window: Window, single: bool) -> None:
    assert window.is_single is single


@EXAMPLES
@given(*[st.integers(1, 4)] * 3, st.integers(0, 3), st.integers(0, 3), st.integers(0, 8))
def test_fitted_padding_gives_the_same_count(
    kernel: int, stride: int, dilation: int, begin: int, end: int, more: int
) -> None:
    window = Window((kernel,), (stride,), (dilation,), (begin,), (end,))
    length = max(1, window.reach(0) - begin - end) + more
    count = (length + begin + end - window.reach(0)) // stride + 1
    (fitted,) = window.fitted((length,), (count,)).pads_end
    assert 0 <= fitted <= end
    assert (length + begin + fitted - window.reach(0)) // stride + 1 == count


@pytest.mark.parametrize(
    ("attributes", "begin", "end"),
    [
        ({"pads": [1, 0]}, 1, 0),
        ({"output_shape": [8]}, 2, 1),
        ({"output_shape": [8], "pads": [0, 3]}, 0, 3),
        ({"output_shape": [8], "auto_pad": "SAME_UPPER"}, 1, 2),
        ({"auto_pad": b"SAME_LOWER"}, 1, 0),
        ({"output_shape": [20]}, 0, -9),
        ({"output_padding": [1], "output_shape": [8]}, 2, 1),
        ({"output_padding": [1], "output_shape": [9]}, 2, 0),
    ],
)
def test_what_a_transposed_window_cuts_off(
    attributes: dict[str, Any], begin: int, end: int
) -> None:
    """Five windows of three elements, two apart, write eleven elements."""
    made = attributes.get("output_shape", [10])
    window = transposed_window(node_of(strides=[2], **attributes), [3], [5], made)
    assert (window.pads_begin, window.pads_end) == ((begin,), (end,))


@EXAMPLES
@given(*[st.integers(1, 5)] * 3, *[st.integers(0, 12)] * 2, st.integers(1, 6), st.integers(0, 4))
def test_taps_that_see_pads_alone_are_left_out(
    kernel: int, stride: int, dilation: int, begin: int, end: int, length: int, more: int
) -> None:
    """A convolution of random numbers stays what it was, and its pads and counts stay possible."""
    window = Window((kernel,), (stride,), (dilation,), (begin,), (end,))
    padded = length + begin + end
    if padded < window.reach(0):
        padded, length = window.reach(0) + more, length + window.reach(0) + more - padded
    count = (padded - window.reach(0)) // stride + 1
    chance = np.random.default_rng(kernel * 100 + length)
    data, weights = chance.integers(1, 9, length), chance.integers(1, 9, kernel)

    def convolved(by: Window, taps: np.ndarray) -> list[int]:
        wide = np.pad(data, (by.pads_begin[0], by.pads_end[0]))
        places = range(0, len(wide) - by.reach(0) + 1, by.strides[0])
        step = by.dilations[0]
        return [int((wide[at : at + by.reach(0) : step] * taps).sum()) for at in places]

    (kept,) = window.seen_taps((length,), (count,))
    trimmed = window.with_taps((kept,))
    assert trimmed.kernel == (len(kept),)
    assert convolved(trimmed, weights[kept.start : kept.stop]) == convolved(window, weights)


@pytest.mark.parametrize(
    ("dilation", "length", "kept"),
    [(36, 4, range(1, 2)), (3, 4, range(3)), (4, 4, range(1, 2)), (36, 37, range(3))],
)
def test_a_wide_dilation_on_a_small_map_is_one_tap(dilation: int, length: int, kept: range) -> None:
    window = Window((3,), (1,), (dilation,), (dilation,), (dilation,))
    assert window.seen_taps((length,), (length,)) == (kept,)
