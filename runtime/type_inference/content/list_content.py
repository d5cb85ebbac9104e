"""Where the elements of lists of lengths go: content rules that compute nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...graph import DType, Node, Shape, TensorType, Value
from ...graph.sym_int import has_sym_ints
from ..dims import ceil_divide
from ..operands import integer, operand
from .lengths import LIMIT, ContentRule, Element, Lengths, constant_lengths, known_integers

__all__ = ["LIST_RULES", "sliced_length", "split_lengths"]

Inputs = Sequence[Lengths | None]


def _shape_of(node: Node) -> Shape | None:
    x = operand(node, 0)
    return None if x is None else x.shape


def _shape(node: Node, inputs: Inputs) -> Lengths | None:
    shape, start = _shape_of(node), integer(node, "start", 0)
    end = None if shape is None else integer(node, "end", len(shape))
    if shape is None or start is None or end is None:
        return None
    return Lengths(shape[start:end])


def _size(node: Node, inputs: Inputs) -> Lengths | None:
    shape = _shape_of(node)
    if shape is None:
        return None
    known = [dim for dim in shape if isinstance(dim, int)]
    if len(known) < len(shape) and 0 not in known:
        return None
    return Lengths((math.prod(known),), is_scalar=True)


def _constant(node: Node, inputs: Inputs) -> Lengths | None:
    array = node.attributes.get("value")
    return constant_lengths(array) if isinstance(array, np.ndarray) else None


def _same(node: Node, inputs: Inputs) -> Lengths | None:
    return inputs[0]


def _gather(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, indices = inputs[0], inputs[1]
    places = known_integers(indices)
    if lengths is None or indices is None or places is None or lengths.is_scalar:
        return None
    count = len(lengths.dims)
    if integer(node, "axis", 0) not in (0, -1):
        return None
    if any(not -count <= place < count for place in places):
        return None
    dims = tuple(lengths.dims[place] for place in places)
    return lengths._replace(dims=dims, is_scalar=indices.is_scalar)


def _slice(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, starts, ends = inputs[0], known_integers(inputs[1]), known_integers(inputs[2])
    axes = [0] if inputs[3] is None else known_integers(inputs[3])
    steps = [1] if inputs[4] is None else known_integers(inputs[4])
    if lengths is None or lengths.is_scalar or starts is None or ends is None or steps is None:
        return None
    if not len(starts) == len(ends) == len(steps) == 1 or steps[0] == 0 or axes not in ([0], [-1]):
        return None
    dims = lengths.dims[starts[0] : ends[0] : steps[0]]
    if len(dims) != sliced_length(len(lengths.dims), starts[0], ends[0], steps[0]):
        return None
    return lengths._replace(dims=dims)


def sliced_length(length: int, start: int, end: int, step: int) -> int:
    """Count what a Slice takes of an axis. step is not 0.

    As numpy counts, but with a negative step a start before the first element counts as the first.
    """
    if step < 0 and start < -length < 0:
        start = 0
    least, most = (-1, length - 1) if step < 0 else (0, length)
    first, last = (
        max(least, place + length) if place < 0 else min(most, place) for place in (start, end)
    )
    span = first - last if step < 0 else last - first
    return 0 if span <= 0 else (span - 1) // abs(step) + 1


def _split(node: Node, inputs: Inputs) -> list[Lengths] | None:
    lengths = inputs[0]
    if lengths is None or lengths.is_scalar or integer(node, "axis", 0) not in (0, -1):
        return None
    parts = split_lengths(node, len(lengths.dims), known_integers(inputs[1]))
    if parts is None:
        return None
    found, start = [], 0
    for part in parts:
        found.append(lengths._replace(dims=lengths.dims[start : start + part]))
        start += part
    return found


def split_lengths(node: Node, length: int, parts: Sequence[int] | None) -> Sequence[int] | None:
    """Return the lengths of what a Split makes; None if the node contradicts itself."""
    count = integer(node, "num_outputs", len(node.outputs))
    if count != len(node.outputs) or not count:
        return None
    if parts is None:
        chunk = ceil_divide(length, count)
        last = length - chunk * (count - 1)
        return None if last < 0 else [chunk] * (count - 1) + [last]
    is_whole = len(parts) == count and sum(parts) == length and min(parts) >= 0
    return parts if is_whole else None


def _concat(node: Node, inputs: Inputs) -> Lengths | None:
    dims: list[Element] = []
    dtype: DType | None = None
    for value, lengths in zip(node.inputs, inputs, strict=False):
        if lengths is not None and not lengths.is_scalar:
            if dtype not in (None, lengths.dtype):
                return None
            dims += lengths.dims
            dtype = lengths.dtype
            continue
        count = _list_length(value)
        if count is None:
            return None
        dims += [None] * count
    return None if dtype is None else Lengths(tuple(dims), dtype=dtype)


def _list_length(value: Value | None) -> int | None:
    """Count the elements of a short list of integers that nothing else is known of."""
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    if value.type.dtype not in (DType.INT32, DType.INT64) or len(value.type.shape) != 1:
        return None
    count = value.type.shape[0]
    return count if isinstance(count, int) and count <= LIMIT else None


def _unsqueeze(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, axes = inputs[0], known_integers(inputs[1])
    if lengths is None or not lengths.is_scalar or axes not in ([0], [-1]):
        return None
    return lengths._replace(is_scalar=False)


def _squeeze(node: Node, inputs: Inputs) -> Lengths | None:
    lengths = inputs[0]
    if lengths is None or lengths.is_scalar or len(lengths.dims) != 1:
        return None
    if inputs[1] is not None and known_integers(inputs[1]) not in ([0], [-1]):
        return None
    return lengths._replace(is_scalar=True)


def _reshape(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, target = inputs[0], known_integers(inputs[1])
    if lengths is None or target is None:
        return None
    if target == [] and len(lengths.dims) == 1:
        return lengths._replace(is_scalar=True)
    if target in ([-1], [len(lengths.dims)]) and lengths.dims:
        return lengths._replace(is_scalar=False)
    return None


def _expand(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, target = inputs[0], known_integers(inputs[1])
    if lengths is None or target is None or len(target) > 1:
        return None
    count = len(lengths.dims)
    if not target or target[0] == count or (target[0] == 1 and not lengths.is_scalar):
        return lengths._replace(is_scalar=lengths.is_scalar and not target)
    if count != 1 or not 0 <= target[0] <= LIMIT:
        return None
    return lengths._replace(dims=lengths.dims * target[0], is_scalar=False)


def _tile(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, repeats = inputs[0], known_integers(inputs[1])
    if lengths is None or lengths.is_scalar or repeats is None or len(repeats) != 1:
        return None
    if not 0 <= repeats[0] * len(lengths.dims) <= LIMIT:
        return None
    return lengths._replace(dims=lengths.dims * repeats[0])


def _constant_of_shape(node: Node, inputs: Inputs) -> Lengths | None:
    shape = known_integers(inputs[0])
    value = node.attributes.get("value", np.zeros(1, np.float32))
    item = constant_lengths(value) if isinstance(value, np.ndarray) else None
    if shape is None or item is None or len(item.dims) != 1 or len(shape) > 1:
        return None
    count = shape[0] if shape else 1
    if not 0 <= count <= LIMIT:
        return None
    return Lengths(item.dims * count, not shape, item.dtype)


def _range(node: Node, inputs: Inputs) -> Lengths | None:
    given = [item for item in inputs[:3] if item is not None and len(item.dims) == 1]
    numbers = [item for lengths in given for item in known_integers(lengths) or ()]
    if len(numbers) != 3 or numbers[2] == 0 or any(item.dtype != given[0].dtype for item in given):
        return None
    start, limit, delta = numbers
    if has_sym_ints(numbers):
        return None  # how many there are depends on free lengths
    if ceil_divide(limit - start, delta) > LIMIT:
        return None
    return Lengths(tuple(range(start, limit, delta)), dtype=given[0].dtype)


LIST_RULES: Mapping[str, ContentRule] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": _same,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _same,
    "Unsqueeze": _unsqueeze,
}
