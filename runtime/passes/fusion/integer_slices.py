"""Integer convolutions over many channels as ones over few, whose sums are added up as integers.

float32 holds the sums of a few hundred products of 8 bits exactly, and no more. Devices convolve in
that, so a ConvInteger whose sums stay integers is cut along its channels, and where a window alone
has more products, into parts of the window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...decompositions import Composition
from ...graph import Graph, Node, Value
from ...type_inference import ShapeContent
from ...type_inference.families.windows import SAME, same_padding, window_reach
from ...type_inference.made_types import types_of_made
from ..decomposing import patch_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, static_shape
from ..rewriting.pass_base import Pass
from .integer_products import EXACT_PRODUCTS, is_made_real

__all__ = ["IntegerSlices"]

_TO_THE_END = (1 << 63) - 1


class IntegerSlices(Pass):
    """Write a ConvInteger whose sums are too large for float32 as an integer sum of smaller ones.

    Each group is a convolution of its own, of so many channels at a time that sums are exact. A
    window that alone has more products is cut, too, if the lengths of the axes are known. One whose
    sums are cast to float32 is left as it is.
    """

    name = "integer slices"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on devices that have the operator
    wanted_ops = frozenset({"ConvInteger"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, "ConvInteger"):
                continue
            shape = static_shape(node.inputs[1])
            if shape is None or math.prod(shape[1:]) <= EXACT_PRODUCTS or is_made_real(node):
                continue
            groups = int(node.attributes.get("group", 1))
            pieces = _pieces(node, shape[2:])
            if 0 not in shape and pieces and groups > 0 and shape[0] % groups == 0:
                step = max(1, EXACT_PRODUCTS // math.prod(shape[2:]))
                yield _patch(node, shape[0] // groups, shape[1], step, groups, pieces)


class _Part(NamedTuple):
    """A part of a window along an axis, the part of the axis that it sees, and its padding."""

    first_tap: int
    end_tap: int
    start: int
    end: int
    pad_begin: int
    pad_end: int


_Piece = tuple[_Part, ...]
"""A part along each axis; none: the whole window."""


def _pieces(node: Node, window: Sequence[int]) -> list[_Piece]:
    """Cut a window into pieces of which each has few products; [] if that cannot be told.

    Pieces that see nothing but padding are left out.
    """
    if math.prod(window) <= EXACT_PRODUCTS:
        return [()]
    shape, rank = static_shape(node.inputs[0]), len(window)
    if shape is None or len(shape) != rank + 2:
        return []
    strides, dilations = (
        [int(item) for item in node.attributes.get(name) or [1] * rank]
        for name in ("strides", "dilations")
    )
    pads = [int(item) for item in node.attributes.get("pads") or [0] * (2 * rank)]
    auto_pad, room = node.text("auto_pad", "NOTSET"), EXACT_PRODUCTS
    parts: list[list[_Part]] = []
    for axis in reversed(range(rank)):
        length, taps, dilation = shape[2 + axis], window[axis], dilations[axis]
        padding = pads[axis], pads[rank + axis]
        if auto_pad != "NOTSET":
            reach = window_reach(taps, dilation)
            is_same = auto_pad in SAME
            padding = same_padding(length, reach, strides[axis], auto_pad) if is_same else (0, 0)
        step = min(taps, room)
        room //= step
        parts.insert(0, _parts(length, taps, step, dilation, padding))
    return list(itertools.product(*parts))


def _parts(
    length: int, taps: int, step: int, dilation: int, padding: tuple[int, int]
) -> list[_Part]:
    found = []
    for first in range(0, taps, step):
        end = min(first + step, taps)
        begin_pad = padding[0] - first * dilation
        end_pad = padding[1] - (taps - end) * dilation
        if length + min(begin_pad, 0) + min(end_pad, 0) > 0:
            ends = max(-begin_pad, 0), end_pad if end_pad < 0 else _TO_THE_END
            found.append(_Part(first, end, *ends, max(begin_pad, 0), max(end_pad, 0)))
    return found


def _patch(
    node: Node, rows: int, depth: int, step: int, groups: int, pieces: Sequence[_Piece]
) -> GraphPatch:
    """Cut into ``groups`` of ``rows`` channels of the result, and each into ``step`` of depth."""
    made = Composition(node, node.inputs, types_of_made(ShapeContent()))
    x, weights, x_point, w_point = made.given(0), made.given(1), made.optional(2), made.optional(3)
    try:
        seen = [(piece, _seen(made, x, piece)) for piece in pieces]
        parts = []
        for group in range(groups):
            first, own = group * rows, w_point
            if own is not None and static_shape(own) not in ((), (1,)):
                own = _cut(made, own, 0, first, first + rows)
            own_weights = _cut(made, weights, 0, first, first + rows) if groups > 1 else weights
            total: Value | None = None
            for (piece, image), start in itertools.product(seen, range(0, depth, step)):
                end = min(start + step, depth)
                data = _cut(made, image, 1, group * depth + start, group * depth + end)
                taps = _cut(made, own_weights, 1, start, end)
                for axis, part in enumerate(piece):
                    taps = _cut(made, taps, 2 + axis, part.first_tap, part.end_tap)
                kept = _attributes(node, piece)
                sums = made.add("ConvInteger", data, taps, x_point, own, **kept)
                total = sums if total is None else made.add("Add", total, sums)
            assert total is not None
            parts.append(total)
        result = parts[0] if len(parts) == 1 else made.add("Concat", *parts, axis=1)
        return patch_of(made, [result])
    except BaseException:
        made.discard()
        raise


def _attributes(node: Node, piece: _Piece) -> dict[str, Any]:
    kept = {key: item for key, item in node.attributes.items() if key != "group"}
    if piece:
        for name in ("auto_pad", "kernel_shape"):
            kept.pop(name, None)
        kept["pads"] = [part.pad_begin for part in piece] + [part.pad_end for part in piece]
    return kept


def _seen(made: Composition, x: Value, piece: _Piece) -> Value:
    """Return what a piece of a window sees."""
    for axis, part in enumerate(piece):
        if part.start or part.end != _TO_THE_END:
            x = _cut(made, x, 2 + axis, part.start, part.end)
    return x


def _cut(made: Composition, value: Value, axis: int, start: int, end: int) -> Value:
    bounds = (made.integers(number) for number in (start, end, axis))
    return made.add("Slice", value, *bounds)
