"""Integer convolutions over many channels as ones over few, whose sums are added up as integers.

float32 holds the sums of a few hundred products of 8 bits exactly, and no more. Devices convolve in
that, so a ConvInteger whose sums stay integers is cut along its channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...decompositions import Composition
from ...graph import Graph, Node, Value
from ...type_inference import ShapeContent
from ...type_inference.made_types import types_of_made
from ..decomposing import patch_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, static_shape
from ..rewriting.pass_base import Pass
from .integer_products import EXACT_PRODUCTS, is_made_real

__all__ = ["IntegerSlices"]


class IntegerSlices(Pass):
    """Write a ConvInteger whose sums are too large for float32 as an integer sum of smaller ones.

    Each group is a convolution of its own, of so many channels at a time that sums are exact. One
    whose sums are cast to float32, or whose window alone has more products, is left as it is.
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
            step, groups = (
                EXACT_PRODUCTS // math.prod(shape[2:]),
                int(node.attributes.get("group", 1)),
            )
            if step and groups > 0 and shape[0] % groups == 0:
                yield _patch(node, shape[0] // groups, shape[1], step, groups)


def _patch(node: Node, rows: int, depth: int, step: int, groups: int) -> GraphPatch:
    """Cut into ``groups`` of ``rows`` channels of the result, and each into ``step`` of depth."""
    made = Composition(node, node.inputs, types_of_made(ShapeContent()))
    x, weights, x_point, w_point = made.given(0), made.given(1), made.optional(2), made.optional(3)
    kept = {key: item for key, item in node.attributes.items() if key != "group"}
    try:
        parts = []
        for group in range(groups):
            first, own = group * rows, w_point
            if own is not None and static_shape(own) not in ((), (1,)):
                own = _cut(made, own, 0, first, first + rows)
            own_weights = _cut(made, weights, 0, first, first + rows) if groups > 1 else weights
            total: Value | None = None
            for start in range(0, depth, step):
                end = min(start + step, depth)
                data = _cut(made, x, 1, group * depth + start, group * depth + end)
                taps = _cut(made, own_weights, 1, start, end)
                sums = made.add("ConvInteger", data, taps, x_point, own, **kept)
                total = sums if total is None else made.add("Add", total, sums)
            assert total is not None
            parts.append(total)
        result = parts[0] if len(parts) == 1 else made.add("Concat", *parts, axis=1)
        return patch_of(made, [result])
    except BaseException:
        made.discard()
        raise


def _cut(made: Composition, value: Value, axis: int, start: int, end: int) -> Value:
    bounds = (made.integers(number) for number in (start, end, axis))
    return made.add("Slice", value, *bounds)
