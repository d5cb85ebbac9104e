"""What a Slice of the newest opset says, once its inputs are known. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphError
from ..graph import Node

__all__ = ["slice_box"]


def slice_box(node: Node, shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the first element and the step along each axis of an input of this shape.

    ``starts``, ``axes`` and ``steps`` of the node are constants. A start outside of its axis counts
    as the end of the axis that is nearer, which of a slice backwards is an element. Raises
    GraphError for axes that there are not, steps of 0, and lists of different lengths.
    """
    starts = node.integers_at(1) or []
    axes = node.integers_at(3) or list(range(len(starts)))
    strides = node.integers_at(4) or [1] * len(starts)
    rank = len(shape)
    lengths = {len(starts), len(axes), len(strides)}
    if len(lengths) > 1 or 0 in strides or any(not -rank <= axis < rank for axis in axes):
        raise GraphError(
            f"{node.op} (node {node.name!r}) cannot begin at {starts} of the axes {axes} of "
            f"{list(shape)}, in steps of {strides}"
        )
    begin, step = [0] * len(shape), [1] * len(shape)
    for start, axis, stride in zip(starts, axes, strides, strict=True):
        axis %= len(shape)
        length = shape[axis]
        last = length if stride > 0 else length - 1
        begin[axis] = min(max(start + length if start < 0 else start, 0), last)
        step[axis] = stride
    return begin, step
