"""Mean, deviation, scale and shift as one normalisation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value
from ..folding.constant_cache import ConstantCache
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import (
    commuted,
    dtype_of,
    fuse,
    integers_of,
    is_closed,
    is_standard,
    made_by,
    only_user,
    rank_of,
    scalar_of,
    static_shape,
)
from ..rewriting.pass_base import Pass

__all__ = ["LayerNormalizationFusion"]


class _Match(NamedTuple):
    """x normalised over its last axes; ``last`` makes the result. No scale or shift yet: None.

    ``is_centred`` tells a LayerNormalization from an RMSNormalization.
    """

    x: Value
    axis_count: int
    epsilon: float
    is_centred: bool
    nodes: tuple[Node, ...]
    last: Node
    scale: Value | None = None
    shift: Value | None = None


class LayerNormalizationFusion(Pass):
    """Fuse what exporters write for LayerNorm and RMSNorm, over the last axes of a tensor.

    The mean may be subtracted twice, the square be a Pow or a Mul, the quotient a multiplication by
    the Reciprocal; scale and shift may be missing, and are then ones and zeros. They must be
    constants of the shape of the normalised axes. ``cache`` makes those that are new, once for all
    plans; without one each plan has its own. The node is one of ``domain``, ONNX's or a device's
    own, and its tensor one of ``dtypes``.
    """

    name = "layer normalization fusion"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset({"Pow", "Sqrt"})

    def __init__(
        self,
        cache: ConstantCache | None = None,
        *,
        domain: str = "",
        dtypes: Collection[DType] = (DType.FLOAT32,),
    ) -> None:
        self._cache, self._domain = cache, domain
        self._dtypes = frozenset(dtypes)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            found = _match_quotient(node) if node.graph is graph else None
            if found is None or dtype_of(found.x) not in self._dtypes:
                continue
            found = _with_shift(_with_scale(found))
            lengths = static_shape(found.x)
            shape = None if lengths is None else lengths[len(lengths) - found.axis_count :]
            has_constants = found.scale is not None and (
                found.shift is not None or not found.is_centred
            )
            if is_closed(found.nodes, found.last.outputs[0], graph) and (shape or has_constants):
                yield self._patch(found, shape)

    def _patch(self, found: _Match, shape: Sequence[int] | None) -> GraphPatch:
        op_type = "LayerNormalization" if found.is_centred else "RMSNormalization"
        base = found.last.name
        dtype = dtype_of(found.x) or DType.FLOAT32
        constants = [self._constant(found.scale, f"{base}_scale", 1, shape, dtype)]
        if found.is_centred:
            constants.append(self._constant(found.shift, f"{base}_shift", 0, shape, dtype))
        attributes = {"axis": -found.axis_count, "epsilon": found.epsilon}
        inputs = (found.x, *constants)
        patch = fuse(found.nodes, found.last, op_type, inputs, attributes, domain=self._domain)
        for value in constants:
            if value is not found.scale and value is not found.shift:
                patch.add_constant(value)
        return patch

    def _constant(
        self,
        given: Value | None,
        name: str,
        fill: int,
        shape: Sequence[int] | None,
        dtype: DType,
    ) -> Value:
        """Return a constant of the normalised axes' shape: the one that is there, or a new one."""
        cache = ConstantCache() if self._cache is None else self._cache
        old = None if given is None else given.constant
        if given is not None and old is not None:
            if shape is None or old.shape == tuple(shape):
                return given
            key, sources = ("reshape", tuple(shape)), [old]
            array = cache.get(key, sources, lambda: old.reshape(shape))
        else:
            assert shape is not None  # find has looked
            lengths = tuple(shape)
            array = cache.get(
                ("full", fill, lengths, dtype), [], lambda: np.full(lengths, fill, dtype.numpy)
            )
        return Value(name, TensorType(dtype, array.shape), array)


def _match_quotient(node: Node) -> _Match | None:
    """Match a Div by the deviation, or a Mul with its reciprocal, and all that leads to it."""
    if not is_standard(node, "Div", "Mul"):
        return None
    for numerator, divisor in commuted(node):
        roots = _roots(divisor) if node.op_type == "Div" else _inverse_roots(divisor)
        found = _match_deviation(roots, numerator)
        if found is not None:
            return found._replace(nodes=(*found.nodes, node), last=node)
    return None


def _roots(value: Value | None) -> tuple[Node, ...]:
    """Return the node that makes the value as the square root of its first input."""
    node = made_by(value, "Sqrt", "Pow")
    if node is None or (node.op_type == "Pow" and scalar_of(node.inputs[1]) != 0.5):
        return ()
    return (node,)


def _inverse_roots(value: Value) -> tuple[Node, ...]:
    """Return the nodes that make the value as 1 over a square root, the root first."""
    node = made_by(value, "Reciprocal", "Div", "Pow")
    if node is None:
        return ()
    if node.op_type == "Pow":
        return (node,) if scalar_of(node.inputs[1]) == -0.5 else ()
    if node.op_type == "Div" and scalar_of(node.inputs[0]) != 1:
        return ()
    roots = _roots(node.inputs[-1])
    return (*roots, node) if roots else ()


def _match_deviation(roots: Sequence[Node], numerator: Value) -> _Match | None:
    """Match what the root is taken of: a mean of squares plus epsilon."""
    add = made_by(roots[0].inputs[0], "Add") if roots else None
    if add is None:
        return None
    for mean_square, epsilon in commuted(add):
        number, mean = scalar_of(epsilon), _match_mean(mean_square)
        if number is None or mean is None:
            continue
        found = _match_centred(mean, numerator, number) or _match_plain(mean, numerator, number)
        if found is not None:
            return found._replace(nodes=(*found.nodes, mean.node, add, *roots))
    return None


class _Mean(NamedTuple):
    """A ReduceMean of ``source`` over its last axes, which stay as axes of length 1."""

    node: Node
    source: Value
    axis_count: int


def _match_mean(value: Value | None) -> _Mean | None:
    node = made_by(value, "ReduceMean")
    source = None if node is None else node.inputs[0]
    if node is None or source is None or not node.attributes.get("keepdims", 1):
        return None
    axes = integers_of(node.input_at(1))
    if axes is None and "axes" in node.attributes:
        axes = tuple(int(axis) for axis in node.attributes["axes"])
    rank = rank_of(source)
    if not axes or (rank is None and min(axes) >= 0):
        return None
    negative = sorted(axis - rank if axis >= 0 and rank is not None else axis for axis in axes)
    if negative != list(range(-len(axes), 0)):
        return None
    return _Mean(node, source, len(axes))


def _match_centred(variance: _Mean, numerator: Value, epsilon: float) -> _Match | None:
    """Match x minus its mean above, and the mean of squares of x minus its mean below."""
    square = _squared(variance.source)
    above = made_by(numerator, "Sub")
    below = None if square is None else made_by(square.inputs[0], "Sub")
    if square is None or above is None or below is None or above.inputs[0] is None:
        return None
    means = [_match_mean(sub.inputs[1]) for sub in (above, below)]
    x = above.inputs[0]
    nodes: list[Node] = [square, above, below]
    for mean in means:
        if mean is None or mean.source is not x or mean.axis_count != variance.axis_count:
            return None
        nodes.append(mean.node)
    if below.inputs[0] is not x:
        return None
    return _Match(x, variance.axis_count, epsilon, True, tuple(nodes), square)


def _match_plain(mean: _Mean, numerator: Value, epsilon: float) -> _Match | None:
    """Match x above, and the mean of its squares below."""
    square = _squared(mean.source)
    if square is None or square.inputs[0] is not numerator:
        return None
    return _Match(numerator, mean.axis_count, epsilon, False, (square,), square)


def _squared(value: Value) -> Node | None:
    """Return the node that makes the value as the square of its first input."""
    node = made_by(value, "Pow", "Mul")
    if node is None or (node.op_type == "Mul" and node.inputs[0] is not node.inputs[1]):
        return None
    return node if node.op_type == "Mul" or scalar_of(node.inputs[1]) == 2 else None


def _with_scale(found: _Match) -> _Match:
    node, value = _constant_operand(found, "Mul")
    if node is None:
        return found
    return found._replace(scale=value, nodes=(*found.nodes, node), last=node)


def _with_shift(found: _Match) -> _Match:
    node, value = _constant_operand(found, "Add")
    if node is None or not found.is_centred:
        return found
    return found._replace(shift=value, nodes=(*found.nodes, node), last=node)


def _constant_operand(found: _Match, op_type: str) -> tuple[Node | None, Value | None]:
    """Return the node that alone uses the result with a constant of the normalised axes' shape."""
    result = found.last.outputs[0]
    user = only_user(result)
    if user is None or not is_standard(user, op_type):
        return None, None
    for operand, other in commuted(user):
        if operand is result and other.constant is not None and _fits(other.constant, found):
            return user, other
    return None, None


def _fits(array: np.ndarray, found: _Match) -> bool:
    """True if the constant has one number for each element of the normalised axes.

    Without their lengths its rank tells: then it broadcasts only if it is as long as they are, or
    if it is of length 1, which is left alone.
    """
    dtype = dtype_of(found.x)
    if dtype is None or array.dtype != dtype.numpy:
        return False
    lengths = static_shape(found.x)
    if lengths is None:
        return array.ndim == found.axis_count and 1 not in array.shape
    shape = lengths[len(lengths) - found.axis_count :]
    leading = array.shape[: array.ndim - len(shape)]
    is_flat = len(array.shape) <= len(lengths) and all(length == 1 for length in leading)
    return is_flat and array.shape[array.ndim - len(shape) :] == shape
