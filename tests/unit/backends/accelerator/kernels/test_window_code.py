"""Windows as text: how a place is taken apart, and counted."""

from __future__ import annotations

from aioinfer.backends.accelerator.kernels.window_code import (
    nested_index,
    place_lines,
    weight_place,
)
from aioinfer.runtime.lowering.window import Window


def test_places_are_taken_apart_from_the_last_axis_on() -> None:
    window = Window((2, 3, 5), (1,) * 3, (1,) * 3, (0,) * 3, (0,) * 3)
    assert place_lines(2) == "const int o1 = rest % y1; rest /= y1; const int o0 = rest;"
    assert nested_index("plane", range(2)) == "((plane * x0 + a0) * x1 + a1)"
    assert weight_place(window) == "k0 * 15 + k1 * 5 + k2 * 1"
