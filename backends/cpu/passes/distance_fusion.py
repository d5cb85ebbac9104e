"""Distances between all pairs of rows, without the differences that they are made of in memory."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.fusion.scan_batching import DISTANCES
from ....runtime.passes.rewriting.matching import (
    are_float32,
    integers_of,
    is_closed,
    is_standard,
    made_by,
    static_shape,
)
from .fusing import fuse

__all__ = ["DistanceFusion"]


class DistanceFusion(Pass):
    """Make ``PairDistances`` of a difference that broadcasts and the reduction of its last axis.

    The two operands are (rows, 1, length) and (others, length), the latter also with a 1 in front;
    the result is (rows, others). The attribute ``kind`` is the reduction's operator.
    """

    name = "distance fusion"
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset(DISTANCES)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, *DISTANCES):
                continue
            difference = made_by(node.inputs[0], "Sub")
            pair = None if difference is None else _pair(node, difference)
            if difference is None or pair is None:
                continue
            if is_closed((difference, node), node.outputs[0], graph):
                kind = {"kind": node.op_type}
                yield fuse((difference,), node, "PairDistances", pair, kind)


def _pair(node: Node, difference: Node) -> tuple[Value, Value] | None:
    """Return rows and others, in whichever order they are subtracted: no distance minds."""
    left, right = difference.inputs
    if left is None or right is None or not are_float32(left, right, node.outputs[0]):
        return None
    if integers_of(node.input_at(1)) not in ((2,), (-1,)) or node.attributes.get("keepdims", 1):
        return None
    for rows, others in ((left, right), (right, left)):
        first, second = static_shape(rows), static_shape(others)
        if first is None or second is None or len(first) != 3 or first[1] != 1:
            continue
        is_flat = len(second) == 2 or (len(second) == 3 and second[0] == 1)
        if is_flat and second[-1] == first[-1]:
            return rows, others
    return None
