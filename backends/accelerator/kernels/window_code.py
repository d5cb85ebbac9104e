"""Windows in kernel C: loops over what the window of one result sees. Pure.

The text calls ``o<axis>`` the place of a result, ``k<axis>`` that in its window, ``a<axis>`` what
it sees of the input; ``x<axis>`` and ``y<axis>`` are the lengths of input and result, ``p<axis>``
is the padding before the input, ``e<axis>`` that behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ....runtime.lowering.window import Window
from ..launching.reach import INT_LIMIT

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = [
    "check_windows",
    "end_lengths",
    "lengths_of",
    "nested_index",
    "padded_count",
    "parameters_of",
    "place_lines",
    "transposed_loops",
    "weight_place",
    "window_loops",
]


def check_windows(
    builder: PlanBuilder, window: Window, lengths: Sequence[int], counts: Sequence[int]
) -> None:
    """Raise GraphError unless places of a window are counted in C's int, and its steps are steps.

    ``lengths`` are those of the input, ``counts`` those of the result, along spatial axes.
    """
    rank = len(window.kernel)
    if not len(lengths) == len(counts) == len(window.pads_begin) == len(window.pads_end) == rank:
        raise builder.contradiction(f"a window of {list(window.kernel)} is not for {list(lengths)}")
    if len(window.strides) != rank or len(window.dilations) != rank:
        raise builder.contradiction(
            f"a window of {list(window.kernel)} has other axes than its steps"
        )
    for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        step, stride = window.dilations[axis], window.strides[axis]
        pads = abs(window.pads_begin[axis]) + abs(window.pads_end[axis])
        farthest = length + count * stride + window.kernel[axis] * step + pads + step
        if min(step, stride, window.kernel[axis]) < 1 or farthest >= INT_LIMIT:
            raise builder.contradiction(
                f"a window of {window.kernel[axis]}, dilated by {step}, cannot take steps of "
                f"{stride} over {length} elements with {pads} around"
            )


def lengths_of(
    lengths: Sequence[int], counts: Sequence[int], begins: Sequence[int]
) -> list[tuple[str, int]]:
    """Name the int arguments of a kernel over windows; all three are spatial lengths."""
    named = [(f"x{axis}", length) for axis, length in enumerate(lengths)]
    named += [(f"y{axis}", count) for axis, count in enumerate(counts) if axis]
    return named + [(f"p{axis}", begin) for axis, begin in enumerate(begins)]


def end_lengths(window: Window) -> list[tuple[str, int]]:
    """Name the int arguments that ``padded_count`` reads beside those of ``lengths_of``."""
    return [(f"e{axis}", end) for axis, end in enumerate(window.pads_end)]


def parameters_of(named: Iterable[tuple[str, int]]) -> str:
    """Declare int arguments, behind those that a kernel has already."""
    return "".join(f", const int {name}" for name, _ in named)


def place_lines(rank: int) -> str:
    """Take ``rest``, the number of a result in its channel, apart, from the last axis on."""
    lines = [
        f"const int o{axis} = rest % y{axis}; rest /= y{axis};" for axis in reversed(range(1, rank))
    ]
    return " ".join([*lines, "const int o0 = rest;"])


def window_loops(window: Window) -> str:
    """Open one loop an axis over what a window sees of the input; ``}`` closes each."""
    return "\n        ".join(
        f"for (int k{axis} = 0; k{axis} < {length}; k{axis}++) {{ "
        f"const int a{axis} = o{axis} * {stride} - p{axis} + k{axis} * {step}; "
        f"if (a{axis} < 0 || a{axis} >= x{axis}) continue;"
        for axis, (length, stride, step) in enumerate(_axes(window))
    )


def padded_count(window: Window) -> str:
    """Write how many places of the input and its padding a window sees; it begins in them."""
    return " * ".join(
        f"(float)min({length}, "
        f"(x{axis} + e{axis} + {step - 1} - o{axis} * {stride} + p{axis}) / {step})"
        for axis, (length, stride, step) in enumerate(_axes(window))
    )


def transposed_loops(window: Window) -> str:
    """Open one loop an axis over what a result of a transposed convolution is made of."""
    lines = []
    for axis, length in enumerate(window.kernel):
        stride = window.strides[axis]
        lines.append(
            f"for (int k{axis} = 0; k{axis} < {length}; k{axis}++) {{ "
            f"const int t{axis} = o{axis} + p{axis} - k{axis} * {window.dilations[axis]}; "
            f"if (t{axis} < 0 || t{axis} % {stride}) continue; "
            f"const int a{axis} = t{axis} / {stride}; if (a{axis} >= x{axis}) continue;"
        )
    return "\n    ".join(lines)


def _axes(window: Window) -> Iterator[tuple[int, int, int]]:
    """Return length, stride and dilation of each axis."""
    return zip(window.kernel, window.strides, window.dilations, strict=True)


def nested_index(start: str, axes: Iterable[int]) -> str:
    """Write the index of what is seen, counted through ``axes``, the last of them fastest."""
    text = start
    for axis in axes:
        text = f"({text} * x{axis} + a{axis})"
    return text


def weight_place(window: Window) -> str:
    """Write the number of a place in the window, in row-major order."""
    terms = [
        f"k{axis} * {math.prod(window.kernel[axis + 1 :])}" for axis in range(len(window.kernel))
    ]
    return " + ".join(terms) or "0"
