from __future__ import annotations

from typing import Any

import pytest

from aioinfer.backends.opencl.kernels.transposed_convolution import transposed_window
from aioinfer.backends.opencl.kernels.window_code import nested_index, place_lines, weight_place
from aioinfer.backends.opencl.kernels.windows import Window, window_of


@pytest.mark.parametrize(
    ("auto_pad", "begins", "ends"),
    [("SAME_UPPER", (1,), (2,)), ("SAME_LOWER", (2,), (1,)), ("VALID", (0,), (0,))],
)
def test_padding_that_keeps_the_length(auto_pad: str, begins: Any, ends: Any) -> None:
    window = window_of({"auto_pad": auto_pad.encode(), "pads": [5, 5]}, [4], [9])
    assert (window.begins, window.ends) == (begins, ends)


@pytest.mark.parametrize(
    ("attributes", "begin"),
    [
        ({"pads": [1, 0]}, 1),
        ({"output_shape": [8]}, 2),
        ({"output_shape": [8], "pads": [0, 3]}, 0),
        ({"output_shape": [8], "auto_pad": "SAME_UPPER"}, 1),
        ({"output_shape": [20]}, 0),
    ],
)
def test_what_a_transposed_window_cuts_off_before(attributes: Any, begin: int) -> None:
    made = attributes.get("output_shape", [10])
    window = transposed_window({"strides": [2], **attributes}, [3], [5], made)
    assert window.begins == (begin,)


def test_places_are_taken_apart_from_the_last_axis_on() -> None:
    window = Window((2, 3, 5), (1,) * 3, (1,) * 3, (0,) * 3, (0,) * 3)
    assert place_lines(2) == "const int o1 = rest % y1; rest /= y1; const int o0 = rest;"
    assert nested_index("plane", range(2)) == "((plane * x0 + a0) * x1 + a1)"
    assert weight_place(window) == "k0 * 15 + k1 * 5 + k2 * 1"
