"""Products of one value with several weights as one product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.constant_cache import ConstantCache
from ....runtime.passes.matching import commuted, is_standard, only_user
from ..post_ops import CPU_DOMAIN

__all__ = ["SharedInputFusion"]


@dataclass(frozen=True)
class _Product:
    """x times weights (inputs, outputs), plus a bias (outputs,) if there is one."""

    node: Node
    weights: np.ndarray
    bias: np.ndarray | None
    last: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,) if self.last is self.node else (self.node, self.last)

    @property
    def width(self) -> int:
        return int(self.weights.shape[1])


class SharedInputFusion(Pass):
    """Multiply by the queries', keys' and values' weights at once, and split the result.

    Also for other products with constant matrices that share their left side, a bias after them
    included. Not joined are products with an attention between them: those of different layers with
    one encoder's output would all have to be kept at once. ``cache`` makes the joined weights, so
    that all plans have the same array.
    """

    name = "shared input fusion"
    requires = frozenset({"topological order"})

    def __init__(self, cache: ConstantCache) -> None:
        self._cache = cache

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for group in _groups(graph):
            yield self._patch(group)

    def _patch(self, group: Sequence[_Product]) -> GraphPatch:
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

        whole = add("MatMul", first.inputs[0], self._weights(group), [_widened(group)])
        if any(product.bias is not None for product in group):
            whole = add("Add", whole, self._bias(group), [_widened(group)])
        results = [product.last.outputs[0] for product in group]
        parts = [Value(result.name, result.type) for result in results]
        add("Split", whole, np.array([product.width for product in group], np.int64), parts)
        for result, part in zip(results, parts, strict=True):
            patch.replace(result, part)
        for node in nodes:
            patch.remove(node)
        return patch

    def _weights(self, group: Sequence[_Product]) -> np.ndarray:
        arrays = [product.weights for product in group]
        return self._cache.get("join columns", arrays, lambda: np.concatenate(arrays, axis=1))

    def _bias(self, group: Sequence[_Product]) -> np.ndarray:
        widths = tuple(product.width if product.bias is None else None for product in group)
        sources = [product.bias for product in group if product.bias is not None]
        dtype = group[0].weights.dtype

        def compute() -> np.ndarray:
            arrays = [
                np.zeros(product.width, dtype) if product.bias is None else product.bias
                for product in group
            ]
            return np.concatenate(arrays)

        return self._cache.get(("join biases", widths), sources, compute)


def _groups(graph: Graph) -> Iterator[list[_Product]]:
    """Collect products of one value, up to the next node that multiplies two computed values."""
    open_groups: dict[Value, list[_Product]] = {}
    for node in list(graph.nodes):
        if _is_attending(node):
            yield from _worthwhile(open_groups)
            open_groups = {}
            continue
        product = _match(node)
        x = node.inputs[0] if product is not None else None
        if product is None or x is None:
            continue
        group = open_groups.setdefault(x, [])
        if not group or _may_join(group[0], product):
            group.append(product)
    yield from _worthwhile(open_groups)


def _worthwhile(groups: dict[Value, list[_Product]]) -> Iterator[list[_Product]]:
    return (group for group in groups.values() if len(group) > 1)


def _is_attending(node: Node) -> bool:
    if node.op_type == "Attention" and node.domain in ("", CPU_DOMAIN):
        return True
    values = [value for value in node.inputs if value is not None]
    return is_standard(node, "MatMul") and not any(value.is_constant for value in values)


def _match(node: Node) -> _Product | None:
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
                return _Product(node, weights, bias, add)
    return _Product(node, weights, None, node)


def _may_join(first: _Product, product: _Product) -> bool:
    is_alike = first.weights.dtype == product.weights.dtype
    return is_alike and have_one_affinity((first.node, product.node))


def _widened(group: Sequence[_Product]) -> Value:
    """Make a value of the products' type, but for the last length."""
    old = group[0].node.outputs[0]
    made = Value(f"{old.name}_joined")
    if isinstance(old.type, TensorType) and old.type.shape:
        width = sum(product.width for product in group)
        made.type = TensorType(old.type.dtype, (*old.type.shape[:-1], width))
    return made
