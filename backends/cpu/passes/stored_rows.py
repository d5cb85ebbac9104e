"""Rows of a table that is stored in 8 bits, such as an embedding: gathered before dequantised.

A quantiser writes a table as any other weights, behind a DequantizeLinear. That is a walk over all
of it for the few rows that a request asks for, and four times the memory once it is folded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from .quantization_facts import is_stored_table

__all__ = ["StoredRows"]


class StoredRows(Pass):
    """Gather what is stored, and dequantise that.

    The table is a constant, with one scale for all of it. The DequantizeLinear in front stays where
    others than Gathers use it.
    """

    name = "stored rows"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"DequantizeLinear"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("DequantizeLinear"):
            if node.graph is not graph or not is_stored_table(node):
                continue
            for user, index in list(node.outputs[0].uses):
                if user.graph is graph and user.op == "Gather" and index == 0:
                    patch = _patch(node, user)
                    if patch is not None:
                        yield patch


def _patch(node: Node, gather: Node) -> GraphPatch | None:
    stored, old = node.inputs[0], gather.outputs[0]
    if stored is None or not isinstance(stored.type, TensorType):
        return None
    if not isinstance(old.type, TensorType) or not have_one_affinity((node, gather)):
        return None
    rows = Value(f"{old.name}/stored", TensorType(stored.type.dtype, old.type.shape))
    made = Value(old.name, old.type)
    gathered = Node(
        "Gather", (stored, *gather.inputs[1:]), (rows,), gather.attributes, name=gather.name
    )
    dequantized = Node("DequantizeLinear", (rows, *node.inputs[1:]), (made,), name=node.name)
    patch = GraphPatch(f"gather rows of {stored.name!r} as they are stored")
    patch.add(gathered, gather, (gather,)).add(dequantized, gather, (node,))
    patch.replace(old, made).remove(gather)
    return patch.remove(node) if len(node.outputs[0].uses) == 1 else patch
