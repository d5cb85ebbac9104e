"""Orders of axes: channels first, as ONNX has them, and last, as cuDNN wants them. Pure.

A tensor of three or four axes is a map: batch, channels, and one or two axes of places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.graph import Node, TensorType, Value
from ....runtime.passes.rewriting.matching import is_standard, rank_of, static_shape

__all__ = [
    "is_free",
    "is_map",
    "order_of",
    "reorder_cost",
    "to_first",
    "to_last",
    "turned_array",
    "turned_axis",
    "turned_type",
]

_LAUNCH_BYTES = 8 << 20
"""What a GPU of 4 TB/s moves in the two microseconds that a launch takes, whatever it does."""


def to_last(rank: int) -> tuple[int, ...]:
    """Return the order that brings channels from axis 1 to the end."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Return the order that brings channels from the end to axis 1."""
    return (0, rank - 1, *range(1, rank - 1))


def turned_axis(axis: int, rank: int) -> int:
    """Return where an axis is, counted from either end, once channels are last."""
    return to_last(rank).index(axis % rank)


def turned_type(value: Value) -> TensorType:
    """Return the type of a map whose channels have been moved to the end."""
    kind, shape = value.type, static_shape(value)
    assert isinstance(kind, TensorType)
    assert shape is not None
    return TensorType(kind.dtype, tuple(shape[axis] for axis in to_last(len(shape))))


def turned_array(array: np.ndarray, rank: int) -> np.ndarray:
    """Turn an operand that broadcasts to maps of a rank; a single number stays as it is."""
    if array.size == 1:
        return array
    wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
    turned = np.ascontiguousarray(wide.transpose(to_last(rank))).view()
    turned.flags.writeable = False
    return turned


def is_map(value: Value | None) -> bool:
    """True for a tensor of three or four axes with elements, all lengths known."""
    shape = static_shape(value)
    return shape is not None and len(shape) in (3, 4) and 0 not in shape


def order_of(node: Node) -> tuple[int, ...] | None:
    """Read the order of axes of a Transpose of a map; None for anything else."""
    rank = rank_of(node.inputs[0]) if node.inputs else None
    if not is_standard(node, "Transpose") or rank is None or not is_map(node.inputs[0]):
        return None
    given = node.attributes.get("perm") or range(rank)[::-1]
    return tuple(int(axis) for axis in given)


def is_free(shape: Sequence[int], order: Sequence[int]) -> bool:
    """True if a Transpose leaves the elements where they are: axes of length 1 move alone."""
    long_axes = [axis for axis in order if shape[axis] != 1]
    return long_axes == sorted(long_axes)


def reorder_cost(value: Value) -> int:
    """Return what it costs to turn a map, in bytes moved; nothing where it is free."""
    shape, kind = static_shape(value), value.type
    assert shape is not None
    assert isinstance(kind, TensorType)
    if is_free(shape, to_last(len(shape))):
        return 0
    return _LAUNCH_BYTES + 2 * math.prod(shape) * kind.dtype.item_bytes
