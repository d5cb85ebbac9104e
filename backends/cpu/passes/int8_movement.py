"""What only moves or compares elements, on stored numbers: no need to dequantise them."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import only_user
from .quantization_facts import Quantization, dequantized, quantization_of

__all__ = ["MOVE_FIRST", "Int8Movement"]

MOVE_FIRST = frozenset(
    {
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose result holds elements of their first input, or the largest of some."""


class Int8Movement(Pass):
    """Bring such a node before the DequantizeLinear in front of it.

    It has to be stored again as it was stored before, by the same scale and zero point; of a Concat
    that holds for all parts.
    """

    name = "int8 movement"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"QuantizeLinear"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or node.domain or len(node.outputs) != 1:
                continue
            count = len(node.inputs) if node.op_type == "Concat" else 1
            if node.op_type not in MOVE_FIRST and node.op_type != "Concat":
                continue
            again = only_user(node.outputs[0])
            if again is None or again.op_type != "QuantizeLinear":
                continue
            facts = quantization_of(again)
            stored = None if facts is None else _stored(node.inputs[:count], facts)
            if stored is not None and have_one_affinity((node, again)):
                yield _patch(node, again, (*stored, *node.inputs[count:]))


def _stored(values: tuple[Value | None, ...], facts: Quantization) -> list[Value] | None:
    """Return what all of these values were dequantised from, in the same way."""
    found = [dequantized(value) for value in values]
    stored = [item[0] for item in found if item is not None and item[1] == facts]
    return stored if len(stored) == len(values) else None


def _patch(node: Node, again: Node, inputs: tuple[Value | None, ...]) -> GraphPatch:
    old = again.outputs[0]
    made = Value(old.name, old.type)
    moved = Node(node.op_type, inputs, (made,), node.attributes, name=node.name)
    patch = GraphPatch(f"leave what {node.op_type} {node.name!r} moves as it is stored")
    patch.add(moved, node, (node, again)).replace(old, made)
    return patch.remove(node).remove(again)
