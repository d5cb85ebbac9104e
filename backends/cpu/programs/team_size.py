"""How many threads a plan computes with: a small one gains nothing from a second. Pure."""

from __future__ import annotations

import math

from ....runtime.graph import Graph, Node, TensorType, Value

__all__ = ["SMALL_PLAN", "multiply_adds", "team_size"]

SMALL_PLAN = 2_000_000
"""Multiply-adds that one thread does in about 40 us: as long as waking another takes."""

_GATHERED = {"GridSample": 64, "MaxRoiPool": 64, "RotaryEmbedding": 6}
"""What an element costs that is made of a few others, wherever these lie."""


def team_size(graph: Graph, most: int) -> int:
    """Choose the threads of a plan, 1 or ``most``; its graph's shapes are static."""
    if most == 1:
        return 1
    total = 0
    for node in graph.nodes:
        total += multiply_adds(node)
        if total > SMALL_PLAN:
            return most
    return 1


def multiply_adds(node: Node) -> int:
    """Estimate the work of a node; elementwise ones count an element as one."""
    made = sum(_count(value) for value in node.outputs)
    return made * max(1, _length(node))


def _length(node: Node) -> int:
    """How many products are summed up for one element of the result."""
    shapes = [_shape(value) for value in node.inputs]
    if len(shapes) < 2:
        return 1
    first, second = shapes[0], shapes[1]
    if node.op_type in ("Conv", "Int8Conv"):
        return math.prod(second[1:])
    if node.op_type == "ConvTranspose":  # each input element meets the whole window
        return math.prod(second[2:]) * second[0] if second else 1
    if node.op_type == "Gemm":
        return first[0 if node.attributes.get("transA", 0) else -1] if first else 1
    if node.op_type in ("MatMul", "Int8MatMul", "PackedMatMul"):
        return first[-1] if first else 1
    if node.op_type == "Attention":  # the scores, and the values that they weigh
        return 2 * second[1] if len(second) > 1 else 1
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return _recurrent_length(node, second)
    if node.op_type in _GATHERED:
        return _GATHERED[node.op_type]
    return 1


def _recurrent_length(node: Node, weights: tuple[int, ...]) -> int:
    """Count for one element of a state: all gates, of the input and of the state before."""
    recurrent = _shape(node.inputs[2])
    if len(weights) != 3 or len(recurrent) != 3 or not recurrent[2]:
        return 1
    return weights[1] // recurrent[2] * (weights[2] + recurrent[2])


def _shape(value: Value | None) -> tuple[int, ...]:
    kind = None if value is None else value.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else 1 for dim in kind.shape)


def _count(value: Value) -> int:
    return math.prod(_shape(value))
