"""Products of one value with several constant matrices, made one product and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import DType, Node, TensorType, Value
from ..folding.constant_cache import ConstantCache
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import commuted, is_standard, only_user
from ..rewriting.patch_check import have_one_affinity

__all__ = ["JoinableProduct", "join_products", "match_product", "may_join"]


@dataclass(frozen=True)
class JoinableProduct:
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


def match_product(node: Node) -> JoinableProduct | None:
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
                return JoinableProduct(node, weights, bias, add)
    return JoinableProduct(node, weights, None, node)


def may_join(first: JoinableProduct, product: JoinableProduct) -> bool:
    """True if two products of one value have the same type and affinity."""
    is_alike = first.weights.dtype == product.weights.dtype
    return is_alike and have_one_affinity((first.node, product.node))


def join_products(group: Sequence[JoinableProduct], cache: ConstantCache) -> GraphPatch:
    """Replace products of one value by one, and a Split of its result in the group's order.

    The new nodes stand where the first product does. ``cache`` makes the joined constants; what has
    no bias is given zeros if another has one.
    """
    nodes = [node for product in group for node in product.nodes]
    first = group[0].node
    names = ", ".join(repr(product.node.name) for product in group)
    patch = GraphPatch(f"join the products {names} of one value")

    def add(op_type: str, left: Value | None, right: np.ndarray, outputs: list[Value]) -> Value:
        name = f"{first.name}_joined_{op_type}"
        content = TensorType(DType.of(right.dtype), right.shape)
        constant = Value(f"{name}_constant", content, right)
        attributes = {"axis": -1} if op_type == "Split" else {}
        made = Node(op_type, (left, constant), outputs, attributes, name=name)
        patch.add_constant(constant).add(made, before=first, stands_for=nodes)
        return outputs[0]

    whole = add("MatMul", first.inputs[0], _weights(group, cache), [_widened(group)])
    if any(product.bias is not None for product in group):
        whole = add("Add", whole, _bias(group, cache), [_widened(group)])
    results = [product.last.outputs[0] for product in group]
    parts = [Value(result.name, result.type) for result in results]
    add("Split", whole, np.array([product.width for product in group], np.int64), parts)
    for result, part in zip(results, parts, strict=True):
        patch.replace(result, part)
    for node in nodes:
        patch.remove(node)
    return patch


def _weights(group: Sequence[JoinableProduct], cache: ConstantCache) -> np.ndarray:
    arrays = [product.weights for product in group]
    return cache.get("join columns", arrays, lambda: np.concatenate(arrays, axis=1))


def _bias(group: Sequence[JoinableProduct], cache: ConstantCache) -> np.ndarray:
    widths = tuple(product.width if product.bias is None else None for product in group)
    sources = [product.bias for product in group if product.bias is not None]
    dtype = group[0].weights.dtype

    def compute() -> np.ndarray:
        arrays = [
            np.zeros(product.width, dtype) if product.bias is None else product.bias
            for product in group
        ]
        return np.concatenate(arrays)

    return cache.get(("join biases", widths), sources, compute)


def _widened(group: Sequence[JoinableProduct]) -> Value:
    """Make a value of the products' type, but for the last length."""
    old = group[0].node.outputs[0]
    made = Value(f"{old.name}_joined")
    if isinstance(old.type, TensorType) and old.type.shape:
        width = sum(product.width for product in group)
        made.type = TensorType(old.type.dtype, (*old.type.shape[:-1], width))
    return made
