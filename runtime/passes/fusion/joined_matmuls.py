"""Matmuls of one value with several constant matrices, made one matmul and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...graph import DType, Node, TensorType, Value
from ...graph.mapped_file import Reading
from ..folding.constant_cache import ConstantCache
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import commuted, is_standard, only_user
from ..rewriting.patch_check import have_one_affinity

__all__ = ["JoinableMatmul", "join_matmuls", "match_matmul", "may_join"]


class JoinableMatmul(NamedTuple):
    """x times weights (inputs, outputs), plus a bias (outputs,) if there is one.

    ``node`` multiplies, and ``last`` makes the result: the addition of the bias, or the same node.
    """

    node: Node
    weights: np.ndarray
    bias: np.ndarray | None
    last: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All that it is made of."""
        return (self.node,) if self.last is self.node else (self.node, self.last)

    @property
    def width(self) -> int:
        """How many columns the result has."""
        return int(self.weights.shape[1])


def match_matmul(node: Node) -> JoinableMatmul | None:
    """Read a MatMul of a computed value and a constant matrix of floats; None for what is not."""
    if not is_standard(node, "MatMul") or node.inputs[0] is None or node.inputs[1] is None:
        return None
    x, weights = node.inputs[0], node.inputs[1].constant
    if weights is None or weights.ndim != 2 or x.is_constant:
        return None
    if weights.dtype.kind != "f" or 0 in weights.shape:
        return None
    result = node.outputs[0]
    add = only_user(result)
    if add is not None and is_standard(add, "Add") and have_one_affinity((node, add)):
        for operand, other in commuted(add):
            bias = other.constant
            if operand is result and bias is not None and bias.shape == weights.shape[1:]:
                return JoinableMatmul(node, weights, bias, add)
    return JoinableMatmul(node, weights, None, node)


def may_join(first: JoinableMatmul, matmul: JoinableMatmul) -> bool:
    """True if two matmuls of one value have the same type and affinity."""
    is_alike = first.weights.dtype == matmul.weights.dtype
    return is_alike and have_one_affinity((first.node, matmul.node))


def join_matmuls(group: Sequence[JoinableMatmul], cache: ConstantCache) -> GraphPatch:
    """Replace matmuls of one value by one, and a Split of its result in the group's order.

    The new nodes stand where the first matmul does. ``cache`` makes the joined constants; what has
    no bias is given zeros if another has one.
    """
    nodes = [node for matmul in group for node in matmul.nodes]
    first = group[0].node
    names = ", ".join(repr(matmul.node.name) for matmul in group)
    patch = GraphPatch(f"join the matmuls {names} of one value")

    def add(op_type: str, left: Value | None, right: np.ndarray, outputs: list[Value]) -> Value:
        name = f"{first.name}_joined_{op_type}"
        content = TensorType(DType.of(right.dtype), right.shape)
        constant = Value(f"{name}_constant", content, right)
        attributes = {"axis": -1} if op_type == "Split" else {}
        made = Node(op_type, (left, constant), outputs, attributes, name=name)
        patch.add_constant(constant).add(made, before=first, stands_for=nodes)
        return outputs[0]

    whole = add("MatMul", first.inputs[0], _weights(group, cache), [_widened(group)])
    if any(matmul.bias is not None for matmul in group):
        whole = add("Add", whole, _bias(group, cache), [_widened(group)])
    results = [matmul.last.outputs[0] for matmul in group]
    parts = [Value(result.name, result.type) for result in results]
    add("Split", whole, np.array([matmul.width for matmul in group], np.int64), parts)
    for result, part in zip(results, parts, strict=True):
        patch.replace(result, part)
    for node in nodes:
        patch.remove(node)
    return patch


def _weights(group: Sequence[JoinableMatmul], cache: ConstantCache) -> np.ndarray:
    arrays = [matmul.weights for matmul in group]
    return cache.get("join columns", arrays, lambda: _joined(arrays), may_go=True)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Put matrices side by side; pages of a mapped file are not touched."""
    first, reading, begin = arrays[0], Reading(), 0
    joined = np.empty((first.shape[0], sum(array.shape[1] for array in arrays)), first.dtype)
    for array in arrays:
        end = begin + array.shape[1]
        joined[:, begin:end] = reading.array(array)
        begin = end
    return joined


def _bias(group: Sequence[JoinableMatmul], cache: ConstantCache) -> np.ndarray:
    widths = tuple(matmul.width if matmul.bias is None else None for matmul in group)
    sources = [matmul.bias for matmul in group if matmul.bias is not None]
    dtype = group[0].weights.dtype

    def compute() -> np.ndarray:
        arrays = [
            np.zeros(matmul.width, dtype) if matmul.bias is None else matmul.bias
            for matmul in group
        ]
        return np.concatenate(arrays)

    return cache.get(("join biases", widths), sources, compute)


def _widened(group: Sequence[JoinableMatmul]) -> Value:
    """Make a value of the matmuls' type, but for the last length."""
    old = group[0].node.outputs[0]
    made = Value(f"{old.name}_joined")
    if isinstance(old.type, TensorType) and old.type.shape:
        width = sum(matmul.width for matmul in group)
        made.type = TensorType(old.type.dtype, (*old.type.shape[:-1], width))
    return made
