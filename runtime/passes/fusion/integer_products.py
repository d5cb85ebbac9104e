"""Integer matmuls and convolutions whose sums become real numbers, as ones of real numbers.

A quantiser that leaves scales to the run writes MatMulInteger or ConvInteger, Cast, and Mul by both
scales. That is a matmul of what DequantizeLinear makes of both sides, which devices know how to
compute in integers, or else in floating point.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, made_by, only_user, rank_of, static_shape
from ..rewriting.pass_base import Pass
from ..rewriting.patch_check import have_one_affinity

__all__ = ["EXACT_PRODUCTS", "IntegerProducts", "is_made_real"]

Array = np.ndarray[Any, Any]

_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
EXACT_PRODUCTS = 2**24 // (255 * 255)
"""So many products of 8 bits have a sum that float32 holds, which is so of numbers up to 2**24."""


class IntegerProducts(Pass):
    """Write MatMulInteger and ConvInteger whose sums are cast to float32 as MatMul and Conv.

    A ConvInteger whose sums float32 holds exactly is written so in any case. Zero points are one
    for the data, and one or one for each column or channel of the weights.
    """

    name = "integer products"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on devices that have these operators
    wanted_ops = frozenset(_PRODUCTS)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or not is_standard(node, *_PRODUCTS):
                continue
            patch = _patch(node)
            if patch is not None:
                yield patch


class _Scaled(NamedTuple):
    """The nodes of a matmul that is scaled at once, and its scales."""

    nodes: tuple[Node, ...]
    data: Value
    weights: Array


def _patch(node: Node) -> GraphPatch | None:
    if not _has_plain_points(node):
        return None
    scaled = _scaled(node)
    if scaled is not None:
        patch = GraphPatch(f"write {node.op_type} {node.name!r} and its scales as a real product")
        last = scaled.nodes[-1]
        made = Value(last.outputs[0].name, last.outputs[0].type)
        _add_product(patch, node, made, scaled.data, scaled.weights, last)
        for gone in scaled.nodes:
            patch.remove(gone)
        return patch.replace(last.outputs[0], made)
    if is_made_real(node):
        return _without_casts(node, node.outputs[0].consumers)
    return _cast_back(node) if _is_exact(node) else None


def is_made_real(node: Node) -> bool:
    """True if what reads the sums casts them to float32."""
    casts = node.outputs[0].consumers
    are_all = all(_is_cast(user) and user.graph is node.graph for user in casts)
    return bool(casts) and are_all and not node.outputs[0].is_graph_output


def _without_casts(node: Node, casts: list[Node]) -> GraphPatch | None:
    if not have_one_affinity((node, *casts)):
        return None
    patch = GraphPatch(f"write {node.op_type} {node.name!r} as a real product")
    cast = casts[0]
    made = Value(cast.outputs[0].name, cast.outputs[0].type)
    _add_product(patch, node, made, None, None, node)
    patch.replace(cast.outputs[0], made)
    for other in casts[1:]:
        same = Value(other.outputs[0].name, other.outputs[0].type)
        patch.add(Node("Identity", (made,), (same,), name=other.name), other, (other,))
        patch.replace(other.outputs[0], same)
    for gone in (node, *casts):
        patch.remove(gone)
    return patch


def _cast_back(node: Node) -> GraphPatch:
    patch = GraphPatch(f"write {node.op_type} {node.name!r} as a real product of whole numbers")
    old = node.outputs[0]
    shape = old.type.shape if isinstance(old.type, TensorType) else None
    real = Value(f"{node.name}_real", TensorType(DType.FLOAT32, shape))
    _add_product(patch, node, real, None, None, node)
    made = Value(old.name, old.type)
    attributes = {"to": DType.INT32.value}
    patch.add(Node("Cast", (real,), (made,), attributes, name=f"{node.name}_cast"), node, (node,))
    return patch.replace(old, made).remove(node)


def _add_product(
    patch: GraphPatch,
    node: Node,
    made: Value,
    data_scale: Value | None,
    weight_scales: Array | None,
    place: Node,
) -> None:
    """Add the MatMul or Conv; scales that are None are 1."""
    is_conv = node.op_type == "ConvInteger"
    weights, points = node.inputs[1], node.input_at(3)
    scales = np.ones(1, np.float32) if weight_scales is None else weight_scales.reshape(-1)
    lengths = () if points is None else static_shape(points) or ()
    count = lengths[0] if lengths else 1
    if scales.size == 1 != count:
        scales = np.repeat(scales, count)
    if points is not None and points.constant is not None and count < scales.size:
        points = _constant(patch, node, "points", np.repeat(points.constant, scales.size))
    if scales.size == 1:
        scales = scales.reshape(lengths)
    rank = rank_of(weights) or 1
    factor = data_scale or _constant(patch, node, "one", np.ones((), np.float32))
    sides = (
        (node.inputs[0], factor, node.input_at(2), 1),
        (weights, _constant(patch, node, "scales", scales), points, 0 if is_conv else rank - 1),
    )
    reals = []
    for index, (stored, scale, point, axis) in enumerate(sides):
        assert stored is not None
        shape = stored.type.shape if isinstance(stored.type, TensorType) else None
        real = Value(f"{node.name}_{index}", TensorType(DType.FLOAT32, shape))
        name = f"{node.name}_dequantize_{index}"
        operands = (stored, scale, point) if point is not None else (stored, scale)
        patch.add(
            Node("DequantizeLinear", operands, (real,), {"axis": axis}, name=name), place, (node,)
        )
        reals.append(real)
    patch.add(Node(_PRODUCTS[node.op_type], reals, (made,), node.attributes, name=node.name), place)


def _scaled(node: Node) -> _Scaled | None:
    """Find the Cast behind a matmul, and the Mul by both scales."""
    points = node.input_at(3)
    if points is not None and points.constant is None:
        return None
    cast = only_user(node.outputs[0])
    scaling = only_user(cast.outputs[0]) if cast is not None and _is_cast(cast) else None
    if cast is None or scaling is None or not is_standard(scaling, "Mul"):
        return None
    if not have_one_affinity((node, cast, scaling)):
        return None
    left, right = scaling.inputs
    factor = made_by(right if left is cast.outputs[0] else left, "Mul")
    if left is right or factor is None:
        return None
    columns = _column_count(node)
    for data, weights in (factor.inputs, factor.inputs[::-1]):
        array = None if weights is None else weights.constant
        if data is None or array is None or static_shape(data) not in ((), (1,)):
            continue
        is_row = node.op_type == "MatMulInteger" and array.shape == (columns,)
        if array.dtype != np.float32 or _dtype_of(data) is not DType.FLOAT32:
            continue
        if array.shape in ((), (1,)) or is_row:
            return _Scaled((node, cast, scaling), data, array)
    return None


def _has_plain_points(node: Node) -> bool:
    """True for zero points that DequantizeLinear takes."""
    data, weights = node.input_at(2), node.input_at(3)
    if data is not None and static_shape(data) not in ((), (1,)):
        return False
    if weights is None:
        return True
    return static_shape(weights) in ((), (1,), (_column_count(node),))


def _column_count(node: Node) -> int | None:
    """Return how many columns or channels weights have; those of more than two axes: None."""
    shape = static_shape(node.inputs[1])
    if shape is None:
        return None
    if node.op_type == "ConvInteger":
        return shape[0]
    return shape[1] if len(shape) == 2 else None


def _is_exact(node: Node) -> bool:
    """True for a ConvInteger whose sums are small."""
    shape = static_shape(node.inputs[1])
    if node.op_type != "ConvInteger" or shape is None:
        return False
    return int(np.prod(shape[1:])) <= EXACT_PRODUCTS


def _is_cast(node: Node) -> bool:
    return is_standard(node, "Cast") and node.attributes.get("to") == DType.FLOAT32.value


def _dtype_of(value: Value) -> DType | None:
    return value.type.dtype if isinstance(value.type, TensorType) else None


def _constant(patch: GraphPatch, node: Node, what: str, array: Array) -> Value:
    made = Value(f"{node.name}_{what}", TensorType(DType.of(array.dtype), array.shape), array)
    patch.add_constant(made)
    return made
