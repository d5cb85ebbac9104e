"""A Gemm between two Reshapes as a MatMul on the value as it is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...graph import DType, Graph, Node, TensorType, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, made_by, only_user, static_shape
from ..rewriting.pass_base import Pass
from ..rewriting.patch_check import have_one_affinity

__all__ = ["FlatGemmFusion"]


class FlatGemmFusion(Pass):
    """Multiply rows where they are, instead of flattening them for a Gemm and back.

    Exporters write linear layers so when a Gemm is the operator for them. What comes before and
    after is then next to the matmul again, and can be fused with it. Only ONNX's own operators
    come out: MatMul, and Add if there is a bias.
    """

    name = "flat gemm fusion"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset({"Gemm"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for gemm in graph.nodes_of("Gemm"):
            first = made_by(gemm.inputs[0], "Reshape")
            last = only_user(gemm.outputs[0])
            if first is None or last is None or not is_standard(last, "Reshape"):
                continue
            nodes = (first, gemm, last)
            is_here = have_one_affinity(nodes) and all(node.graph is graph for node in nodes)
            if is_here and _is_matmul(gemm) and _is_flattening(first, last):
                yield _patch(first, gemm, last)


def _is_matmul(gemm: Node) -> bool:
    """True for a matmul with constant weights as they are, plus at most one bias for all rows."""
    numbers = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    is_plain = all(gemm.attributes.get(name, number) == number for name, number in numbers.items())
    weights, bias = gemm.inputs[1], gemm.input_at(2)
    if not is_plain or weights is None or weights.constant is None:
        return False
    if bias is None:
        return True
    return bias.constant is not None and bias.constant.shape == weights.constant.shape[1:]


def _is_flattening(first: Node, last: Node) -> bool:
    """True if the first Reshape joins all axes but the last, and the last one divides them."""
    before, flat = static_shape(first.inputs[0]), static_shape(first.outputs[0])
    after, matmul = static_shape(last.outputs[0]), static_shape(last.inputs[0])
    if not before or flat is None or not after or matmul is None:
        return False  # a scalar has no last axis
    is_joined = flat == (math.prod(before[:-1]), before[-1])
    return is_joined and before[:-1] == after[:-1] and after[-1] == matmul[-1]


def _patch(first: Node, gemm: Node, last: Node) -> GraphPatch:
    old, bias = last.outputs[0], gemm.input_at(2)
    patch = GraphPatch(f"widen Gemm {gemm.name!r}").remove(gemm).remove(last)
    if only_user(first.outputs[0]) is gemm:
        patch.remove(first)
    kind = old.type if isinstance(old.type, TensorType) else TensorType(DType.FLOAT32)
    made = Value(f"{old.name}_matmul" if bias is not None else old.name, kind)
    inputs = (first.inputs[0], gemm.inputs[1])
    matmul = Node("MatMul", inputs, [made], name=f"{gemm.name}_MatMul")
    patch.add(matmul, before=gemm)
    if bias is not None:
        summed = Value(old.name, kind)
        add = Node("Add", (made, bias), [summed], name=f"{gemm.name}_Add")
        patch.add(add, before=gemm)
        made = summed
    return patch.replace(old, made)
