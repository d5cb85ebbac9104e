"""What is stored in 8 bits only to be dequantised again, rounded where it is made.

An operator without a kernel for stored numbers computes in float32, between a DequantizeLinear and
a QuantizeLinear. What it gives to the next such operator is then rounded to what 8 bits can hold,
and need not be in 8 bits: that is four steps on each number,

    clip(x / scale, low - zero point, high - zero point), rounded, times scale

which oneDNN applies to a matmul before it is written, and the elementwise kernel in one walk. It
divides, as numbers between two others are common where one scale is twice another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import made_by
from ..onednn.post_ops import CPU_DOMAIN, PostOp
from .int8_movement import MOVE_FIRST
from .quantization_facts import RANGES, Quantization, quantization_of

__all__ = ["RoundingFusion"]


class RoundingFusion(Pass):
    """Make an ``Eltwise`` of a QuantizeLinear and the DequantizeLinear behind it.

    Both have one scale and one zero point for all numbers, the same ones. What holds such numbers
    already, since it only moves what was dequantised so, stays as it is.
    """

    name = "rounding fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset({"QuantizeLinear"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("DequantizeLinear"):
            patch = _left_out(node) if node.graph is graph else None
            if patch is not None:
                yield patch
        for node in graph.nodes_of("DequantizeLinear"):
            patch = _rounded(node) if node.graph is graph else None
            if patch is not None:
                yield patch


def _pair(node: Node) -> tuple[Node, Value, Quantization] | None:
    """Return the QuantizeLinear before a node, what that is given, and what both say."""
    facts, before = quantization_of(node), made_by(node.inputs[0], "QuantizeLinear")
    if before is None or facts is None or quantization_of(before) != facts:
        return None
    source, stored = before.inputs[0], before.outputs[0]
    if source is None or stored.is_graph_output or not have_one_affinity((before, node)):
        return None
    if not all(quantization_of(user) == facts for user, _ in stored.uses):
        return None
    return before, source, facts


def _left_out(node: Node) -> GraphPatch | None:
    found = _pair(node)
    if found is None or node.outputs[0].is_graph_output:
        return None
    before, source, facts = found
    if quantization_of(_mover(source)) != facts:
        return None
    patch = GraphPatch(f"leave out {node.name!r}, which rounds what is rounded").remove(node)
    return _without(patch.replace(node.outputs[0], source), before)


def _mover(value: Value | None) -> Node | None:
    """Return what made the numbers that a value holds, which others may have moved."""
    while value is not None and value.producer is not None:
        maker = value.producer
        if maker.domain or maker.op_type not in MOVE_FIRST or len(maker.outputs) != 1:
            return maker if maker.op_type == "DequantizeLinear" else None
        value = maker.inputs[0]
    return None


def _rounded(node: Node) -> GraphPatch | None:
    found = _pair(node)
    if found is None:
        return None
    before, source, (scale, zero, dtype) = found
    low, high = RANGES[dtype]
    patch = GraphPatch(f"round where {node.name!r} would dequantise")
    inputs, divided = [source], PostOp.unary("linear", 1.0 / scale)
    if not _has_inverse(scale):
        divisor = Value(f"{node.name}/scale", TensorType(DType.FLOAT32, ()), np.array(scale, "f4"))
        patch.add_constant(divisor)
        inputs, divided = [source, divisor], PostOp.binary("div", 1)
    steps = (
        divided,
        PostOp.unary("clip", float(low - zero), float(high - zero)),
        PostOp.unary("round"),
        PostOp.unary("linear", scale),
    )
    old = node.outputs[0]
    made = Value(old.name, old.type)
    attributes = {"post_ops": [step.text() for step in steps]}
    fused = Node("Eltwise", inputs, (made,), attributes, name=node.name, domain=CPU_DOMAIN)
    patch.add(fused, node, (before, node)).replace(old, made).remove(node)
    return _without(patch, before)


def _has_inverse(scale: float) -> bool:
    """True if multiplying by the inverse rounds as a division does: for powers of two."""
    return math.frexp(scale)[0] == 0.5 and scale <= 2.0**126


def _without(patch: GraphPatch, before: Node) -> GraphPatch:
    """Remove a QuantizeLinear, too, that had the one user that goes."""
    return patch.remove(before) if len(before.outputs[0].uses) == 1 else patch
