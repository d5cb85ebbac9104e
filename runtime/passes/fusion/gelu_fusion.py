"""GELU that files spell out in smaller operators, recognised and named."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ...graph import DType, Graph, Node, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import (
    commuted,
    dtype_of,
    fuse,
    is_closed,
    is_near,
    is_standard,
    made_by,
    rank_of,
)
from ..rewriting.pass_base import Pass
from .factors import Product, product_of

__all__ = ["GeluFusion", "GeluMatch", "gated_factors", "match_gelu"]


class GeluMatch(NamedTuple):
    """The GELU of ``value``; ``nodes`` are all that spell it out."""

    value: Value
    is_tanh: bool
    nodes: tuple[Node, ...]


class GeluFusion(Pass):
    """Turn the parts of GELU, of erf or of tanh, into ONNX's Gelu of one input of ``dtypes``.

    Numbers may be as inexact as files have them, 0.1 %; the result has the exact ones.
    """

    name = "gelu fusion"
    enters_bodies = False  # control flow may run on a device that has another operator set
    wanted_ops = frozenset({"Erf", "Tanh"})

    def __init__(self, dtypes: Collection[DType] = (DType.FLOAT32,)) -> None:
        self._dtypes = frozenset(dtypes)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, "Mul", "Div"):
                continue
            found = match_gelu(node)
            if found is not None and self._may_replace(found, node, graph):
                attributes = {"approximate": "tanh" if found.is_tanh else "none"}
                yield fuse(found.nodes, node, "Gelu", (found.value,), attributes, domain="")

    def _may_replace(self, found: GeluMatch, last: Node, graph: Graph) -> bool:
        value, result = found.value, last.outputs[0]
        # With equal ranks no constant of the pattern has more axes than the value, so shapes are
        # equal.
        has_one_rank = rank_of(value) is not None and rank_of(value) == rank_of(result)
        has_type = dtype_of(value) in self._dtypes and dtype_of(value) is dtype_of(result)
        return has_one_rank and has_type and is_closed((*found.nodes, last), result, graph)


def gated_factors(node: Node) -> Iterator[tuple[Value, Node, Product]]:
    """Return x and the maker of g, for a node that gives c * x * g; both orders."""
    product = product_of(node.outputs[0])
    if len(product.factors) != 2:
        return
    for value, other in (product.factors, product.factors[::-1]):
        if other.producer is not None:
            yield value, other.producer, product


def match_gelu(node: Node) -> GeluMatch | None:
    """Find 0.5 * x * (1 + g), g being erf(x / sqrt(2)) or tanh of the polynomial."""
    for value, total, product in gated_factors(node):
        if not is_near(product.coefficient, 0.5) or not is_standard(total, "Add"):
            continue
        for curve, one in commuted(total):
            maker = made_by(curve, "Erf", "Tanh")
            if maker is None or maker.inputs[0] is None or not is_near(one, 1.0):
                continue
            argument = _argument(maker, maker.inputs[0], value)
            if argument is not None:
                nodes = (*product.nodes, total, maker, *argument)
                return GeluMatch(value, maker.op_type == "Tanh", nodes)
    return None


def _argument(maker: Node, argument: Value, value: Value) -> tuple[Node, ...] | None:
    """List the nodes that make what erf or tanh is given, if that is what GELU has there."""
    product = product_of(argument)
    if maker.op_type == "Erf":
        is_scaled = product.factors == (value,) and is_near(product.coefficient, math.sqrt(0.5))
        return product.nodes if is_scaled else None
    if not is_near(product.coefficient, math.sqrt(2 / math.pi)):
        return None
    for factor in product.factors:
        total = made_by(factor, "Add")
        rest = product.without(factor)
        # Either c * (x + 0.044715 * x**3), or c * x * (1 + 0.044715 * x**2).
        cubic = _polynomial(total, value, None, 3) if total and rest == [] else None
        square = _polynomial(total, value, 1.0, 2) if total and rest == [value] else None
        found = cubic or square
        if found is not None:
            return (*product.nodes, *found)
    return None


def _polynomial(
    total: Node, value: Value, one: float | None, power: int
) -> tuple[Node, ...] | None:
    """List the nodes that make ``one`` (None: the value itself) plus 0.044715 * value**power."""
    for first, second in commuted(total):
        is_first = first is value if one is None else is_near(first, one)
        product = product_of(second)
        if not is_first or not is_near(product.coefficient, 0.044715):
            continue
        if product.factors == (value,) * power:
            return (total, *product.nodes)
    return None
