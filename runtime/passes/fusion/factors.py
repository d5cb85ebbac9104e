"""Products taken apart: which values are multiplied, and by which number in all.

Exporters write ``0.5 * x * g`` in every order and association, and divide where others multiply.
Flattened, all of them are the same: the factors x and g, and the coefficient 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...graph import Node, Value
from ..rewriting.matching import is_scalar, is_standard, scalar_of

__all__ = ["Product", "product_of"]

_MAX_FACTORS = 8
_MAX_DEPTH = 8
"""A pattern has four of each at most; what has more is no pattern, and not worth following."""


class Product(NamedTuple):
    """coefficient * factors[0] * factors[1] ...; ``nodes`` are those that multiply."""

    factors: tuple[Value, ...]
    coefficient: float = 1.0
    nodes: tuple[Node, ...] = ()

    def times(self, other: Product) -> Product:
        """Multiply two products."""
        return Product(
            self.factors + other.factors,
            self.coefficient * other.coefficient,
            self.nodes + other.nodes,
        )

    def without(self, factor: Value) -> list[Value] | None:
        """List the factors but one of these; None if it is none of them."""
        rest = list(self.factors)
        if factor not in rest:
            return None
        rest.remove(factor)
        return rest


def product_of(value: Value, depth: int = 0) -> Product:
    """Take the multiplications apart that make a value; one that is no product is a factor.

    Followed are Mul, Div by a number, Neg, and Pow with 2 or 3, as long as nothing else uses what
    is in between, and down to a small ``depth``.
    """
    node = value.producer
    parts = None if node is None else next(_parts(node), None)
    if node is None or parts is None:
        return Product((value,))
    product = Product((), parts.coefficient, (node,))
    for factor in parts.factors:
        is_followed = depth < _MAX_DEPTH and _is_inside(factor, node)
        inner = product_of(factor, depth + 1) if is_followed else Product((factor,))
        product = product.times(inner)
        if len(product.factors) > _MAX_FACTORS:
            return Product((value,))
    return product


def _is_inside(factor: Value, node: Node) -> bool:
    is_near_by = factor.producer is not None and factor.producer.graph is node.graph
    return is_near_by and len(factor.uses) == 1 and not factor.is_graph_output


def _parts(node: Node) -> Iterator[Product]:
    """Return what one node multiplies, if it multiplies."""
    left = node.inputs[0] if node.inputs else None
    right = node.inputs[1] if len(node.inputs) == 2 else None
    if left is None:
        return
    if is_standard(node, "Neg"):
        yield Product((left,), -1.0)
    number = scalar_of(right)
    if is_standard(node, "Div") and number:
        yield Product((left,), 1.0 / number)
    if is_standard(node, "Pow") and number in (2.0, 3.0):
        yield Product((left,) * int(number))
    if is_standard(node, "Mul") and right is not None:
        numbers = [scalar_of(item) for item in (left, right) if is_scalar(item)]
        others = tuple(item for item in (left, right) if not is_scalar(item))
        coefficient = 1.0
        for found in numbers:
            coefficient *= 1.0 if found is None else found
        yield Product(others, coefficient)
