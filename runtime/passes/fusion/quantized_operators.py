"""Operators on stored numbers, as what they mean: DequantizeLinear, the operator, QuantizeLinear.

So devices look for one form of a quantised matmul.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, rank_of
from ..rewriting.pass_base import Pass

__all__ = ["QuantizedOperators"]


class QuantizedOperators(Pass):
    """Write QLinearConv and QLinearMatMul with the operators that they are made of.

    Scales are constants: of the result one, of weights one or one for each channel. Others are left
    as they are, as is a bias whose scale does not follow from constants.
    """

    name = "quantized operators"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on devices that have these operators
    wanted_ops = frozenset({"QLinearConv", "QLinearMatMul"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph:
                continue
            if is_standard(node, "QLinearConv") and len(node.inputs) in (8, 9):
                patch = _convolution(node)
            elif is_standard(node, "QLinearMatMul") and len(node.inputs) == 8:
                patch = _matmul(node)
            else:
                continue
            if patch is not None:
                yield patch


def _convolution(node: Node) -> GraphPatch | None:
    x, x_scale, x_zero, w, w_scale, w_zero, *rest = node.inputs
    bias = node.input_at(8)
    scales = [None if value is None else value.constant for value in (x_scale, w_scale)]
    if scales[0] is None or scales[1] is None or scales[0].size != 1 or not _is_one(rest[0]):
        return None
    if scales[1].size != 1 and scales[1].ndim != 1:
        return None
    patch = GraphPatch(f"write QLinearConv {node.name!r} as what it means")
    given = [
        _dequantized(patch, node, "x", (x, x_scale, x_zero), 1),
        _dequantized(patch, node, "w", (w, w_scale, w_zero), 0),
    ]
    if bias is not None:
        product = (scales[0].reshape(-1) * scales[1].reshape(-1)).astype(np.float32)
        scale = Value(f"{node.name}_b_scale", TensorType(DType.FLOAT32, product.shape), product)
        patch.add_constant(scale)
        given.append(_dequantized(patch, node, "b", (bias, scale, None), 0))
    return _finished(patch, node, "Conv", given, rest[0], rest[1])


def _matmul(node: Node) -> GraphPatch | None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    if not _is_one(a_scale) or not _is_one(y_scale):
        return None
    array, rank = (None if b_scale is None else b_scale.constant), rank_of(b)
    if array is None or (array.size != 1 and (array.ndim != 1 or rank is None)):
        return None
    patch = GraphPatch(f"write QLinearMatMul {node.name!r} as what it means")
    given = [
        _dequantized(patch, node, "a", (a, a_scale, a_zero), 1),
        _dequantized(patch, node, "b", (b, b_scale, b_zero), max(0, (rank or 0) - 1)),
    ]
    return _finished(patch, node, "MatMul", given, y_scale, y_zero)


def _dequantized(
    patch: GraphPatch, node: Node, role: str, operands: Sequence[Value | None], axis: int
) -> Value:
    stored = operands[0]
    shape = stored.type.shape if stored and isinstance(stored.type, TensorType) else None
    made = Value(f"{node.name}_{role}", TensorType(DType.FLOAT32, shape))
    attributes: dict[str, Any] = {"axis": axis}
    name = f"{node.name}_dequantize_{role}"
    patch.add(Node("DequantizeLinear", operands, (made,), attributes, name=name), node, (node,))
    return made


def _finished(
    patch: GraphPatch,
    node: Node,
    op_type: str,
    given: Sequence[Value],
    scale: Value | None,
    zero: Value | None,
) -> GraphPatch:
    old = node.outputs[0]
    shape = old.type.shape if isinstance(old.type, TensorType) else None
    real = Value(f"{node.name}_real", TensorType(DType.FLOAT32, shape))
    made = Value(old.name, old.type)
    patch.add(Node(op_type, given, (real,), node.attributes, name=node.name), node, (node,))
    stored = Node("QuantizeLinear", (real, scale, zero), (made,), {}, name=f"{node.name}_quantize")
    patch.add(stored, node, (node,))
    return patch.replace(old, made).remove(node)


def _is_one(value: Value | None) -> bool:
    return value is not None and value.constant is not None and value.constant.size == 1
