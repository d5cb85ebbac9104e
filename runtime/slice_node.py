"""What a Slice of the newest opset says, once its inputs are known. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node

__all__ = ["slice_box"]


def slice_box(node: Node, shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Give the first element and the step along each axis of an input of this shape.

    ``starts``, ``axes`` and ``steps`` of the node are constants. A start outside of its axis counts
    as the end of the axis that is nearer, which of a slice backwards is an element.
    """
    starts = _integers(node, 1) or []
    axes = _integers(node, 3) or list(range(len(starts)))
    strides = _integers(node, 4) or [1] * len(starts)
    begin, step = [0] * len(shape), [1] * len(shape)
    for start, axis, stride in zip(starts, axes, strides, strict=True):
        axis %= len(shape)
        length = shape[axis]
        last = length if stride > 0 else length - 1
        begin[axis] = min(max(start + length if start < 0 else start, 0), last)
        step[axis] = stride
    return begin, step


def _integers(node: Node, index: int) -> list[int] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.constant is None:
        return None
    return [int(number) for number in value.constant.reshape(-1)]
