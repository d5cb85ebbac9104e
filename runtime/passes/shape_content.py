"""What small integer tensors hold, as far as shapes tell: the content that shape arithmetic has.

A list of lengths may be known in part: in ``[batch, 3, 224]`` the last two are, and picking one of
those gives a constant although the list itself is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Dim, DType, Node, TensorType, Value

__all__ = ["Lengths", "ShapeContent"]

_LIMIT = 64
"""Elements of a constant that may be part of a shape; ranks are far smaller."""


@dataclass(frozen=True)
class Lengths:
    """A list of lengths (1-D), or a single one (0-D), known at least in part."""

    dims: tuple[Dim, ...]
    is_scalar: bool = False
    dtype: DType = DType.INT64

    def as_array(self) -> np.ndarray | None:
        """Give the tensor that holds them, or None while one of them is not known."""
        known = [dim for dim in self.dims if isinstance(dim, int)]
        if len(known) < len(self.dims):
            return None
        return np.array(known[0] if self.is_scalar else known, self.dtype.numpy)


class ShapeContent:
    """Follows lists of lengths through a graph; tell it the nodes in topological order."""

    def __init__(self) -> None:
        self._known: dict[Value, Lengths] = {}

    def follow(self, node: Node) -> Lengths | None:
        """Note and give what the node's output holds, if that is known in part. O(rank)."""
        rule = None if node.domain else _RULES.get(node.op_type)
        lengths = rule(self, node) if rule is not None else None
        if lengths is not None:
            self._known[node.outputs[0]] = lengths
        return lengths

    def of_input(self, node: Node, index: int) -> Lengths | None:
        """Give what is known of an input, also of a constant; None if it holds no lengths."""
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            return None
        array = value.constant
        if array is None:
            return self._known.get(value)
        if array.ndim > 1 or array.size > _LIMIT or array.dtype not in _INTEGERS:
            return None
        dims = tuple(int(item) for item in array.reshape(-1))
        return Lengths(dims, array.ndim == 0, DType.of(array.dtype))

    def integers(self, node: Node, index: int) -> list[int] | None:
        """Give an input's integers if all of them are known."""
        lengths = self.of_input(node, index)
        if lengths is None:
            return None
        known = [dim for dim in lengths.dims if isinstance(dim, int)]
        return known if len(known) == len(lengths.dims) else None


_INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))

_Rule = Callable[[ShapeContent, Node], Lengths | None]


def _shape_of(node: Node) -> tuple[Dim, ...] | None:
    value = node.inputs[0] if node.inputs else None
    if value is None or not isinstance(value.type, TensorType):
        return None
    return value.type.shape


def _shape(contents: ShapeContent, node: Node) -> Lengths | None:
    shape = _shape_of(node)
    if shape is None:
        return None
    return Lengths(shape[node.attributes.get("start", 0) : node.attributes.get("end", len(shape))])


def _size(contents: ShapeContent, node: Node) -> Lengths | None:
    shape = _shape_of(node)
    if shape is None:
        return None
    known = [dim for dim in shape if isinstance(dim, int)]
    if len(known) < len(shape) and 0 not in known:
        return None
    return Lengths((math.prod(known),), is_scalar=True)


def _gather(contents: ShapeContent, node: Node) -> Lengths | None:
    lengths, indices = contents.of_input(node, 0), contents.of_input(node, 1)
    places = contents.integers(node, 1)
    if lengths is None or indices is None or places is None or lengths.is_scalar:
        return None
    count = len(lengths.dims)
    if node.attributes.get("axis", 0) not in (0, -1):
        return None
    if any(not -count <= place < count for place in places):
        return None
    dims = tuple(lengths.dims[place] for place in places)
    return replace(lengths, dims=dims, is_scalar=indices.is_scalar)


def _slice(contents: ShapeContent, node: Node) -> Lengths | None:
    lengths = contents.of_input(node, 0)
    starts, ends = contents.integers(node, 1), contents.integers(node, 2)
    steps: list[int] | None = [1]
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = contents.integers(node, 4)
    if lengths is None or lengths.is_scalar or starts is None or ends is None or steps is None:
        return None
    if not len(starts) == len(ends) == len(steps) == 1 or steps[0] < 1:
        return None
    return replace(lengths, dims=lengths.dims[starts[0] : ends[0] : steps[0]])


def _concat(contents: ShapeContent, node: Node) -> Lengths | None:
    dims: list[Dim] = []
    dtype = DType.INT64
    for index, value in enumerate(node.inputs):
        lengths = contents.of_input(node, index)
        if lengths is not None and not lengths.is_scalar:
            dims += lengths.dims
            dtype = lengths.dtype
            continue
        count = _list_length(value)
        if count is None:
            return None
        dims += [None] * count
    return Lengths(tuple(dims), dtype=dtype)


def _list_length(value: Value | None) -> int | None:
    """Count the elements of a short list of integers that nothing else is known of."""
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    if value.type.dtype not in (DType.INT32, DType.INT64) or len(value.type.shape) != 1:
        return None
    count = value.type.shape[0]
    return count if isinstance(count, int) and count <= _LIMIT else None


def _unsqueeze(contents: ShapeContent, node: Node) -> Lengths | None:
    lengths, axes = contents.of_input(node, 0), contents.integers(node, 1)
    if lengths is None or not lengths.is_scalar or axes not in ([0], [-1]):
        return None
    return replace(lengths, is_scalar=False)


def _squeeze(contents: ShapeContent, node: Node) -> Lengths | None:
    lengths = contents.of_input(node, 0)
    if lengths is None or lengths.is_scalar or len(lengths.dims) != 1:
        return None
    if len(node.inputs) > 1 and contents.integers(node, 1) not in ([0], [-1]):
        return None
    return replace(lengths, is_scalar=True)


def _reshape(contents: ShapeContent, node: Node) -> Lengths | None:
    lengths, target = contents.of_input(node, 0), contents.integers(node, 1)
    if lengths is None or target is None:
        return None
    if target == [] and len(lengths.dims) == 1:
        return replace(lengths, is_scalar=True)
    if target in ([-1], [len(lengths.dims)]) and lengths.dims:
        return replace(lengths, is_scalar=False)
    return None


def _cast(contents: ShapeContent, node: Node) -> Lengths | None:
    lengths = contents.of_input(node, 0)
    target = node.attributes.get("to")
    if lengths is None or target not in (DType.INT64.value, DType.INT32.value):
        return None
    largest = max((abs(dim) for dim in lengths.dims if isinstance(dim, int)), default=0)
    return None if largest >= 2**31 else replace(lengths, dtype=DType(target))


def _identity(contents: ShapeContent, node: Node) -> Lengths | None:
    return contents.of_input(node, 0)


_RULES: Mapping[str, _Rule] = {
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _identity,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
