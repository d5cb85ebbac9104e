"""Types of shapes as tensors, and of tensors that are made from a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..graph import DType, Node, TensorType
from .dims import MOST_LENGTH, ceil_divide, dtype_numbered
from .operands import integer, operand
from .rules import type_rule
from .shape_content import ShapeContent

Types = Sequence[TensorType] | None


@type_rule("Shape")
def _shape(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    start = integer(node, "start", 0)
    end = None if x is None else integer(node, "end", len(x.shape))
    if x is None or start is None or end is None:
        return None
    return (TensorType(DType.INT64, (len(x.shape[start:end]),)),)


@type_rule("Size")
def _size(node: Node, contents: ShapeContent) -> Types:
    return None if operand(node, 0) is None else (TensorType(DType.INT64, ()),)


@type_rule("Constant")
def _constant(node: Node, contents: ShapeContent) -> Types:
    value = node.attributes.get("value")
    if not isinstance(value, np.ndarray):
        return None
    return (TensorType(DType.of(value.dtype), value.shape),)


@type_rule("ConstantOfShape")
def _constant_of_shape(node: Node, contents: ShapeContent) -> Types:
    shape, value = contents.dims(node, 0), node.attributes.get("value")
    if shape is None or any(isinstance(dim, int) and dim < 0 for dim in shape):
        return None
    if value is None:
        return (TensorType(DType.FLOAT32, shape),)
    return (TensorType(DType.of(value.dtype), shape),) if isinstance(value, np.ndarray) else None


@type_rule("Range")
def _range(node: Node, contents: ShapeContent) -> Types:
    first = operand(node, 0)
    bounds = [contents.of_input(node, index) for index in range(3)]
    numbers = [contents.numbers(node, index) for index in range(3)]
    start, limit, delta = (item[0] if item and len(item) == 1 else None for item in numbers)
    if first is None or delta == 0:
        return None
    if start is not None and limit is not None and delta is not None:
        length = _count(start, limit, delta)
        return None if length is None else (TensorType(first.dtype, (length,)),)
    if None in bounds:
        return None
    end = contents.dims(node, 1)
    count = end[0] if end and start == 0 and delta == 1 else None
    return (TensorType(first.dtype, (count,)),)


def _count(start: float, limit: float, delta: float) -> int | None:
    """Count the steps from start to limit; None if there are more than a length can be."""
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int):
        steps: float = ceil_divide(limit - start, delta)
    else:
        steps = (limit - start) / delta
    return max(math.ceil(steps), 0) if -math.inf < steps <= MOST_LENGTH else None


@type_rule("EyeLike")
def _eye_like(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None or len(x.shape) != 2:
        return None
    dtype = dtype_numbered(node.attributes.get("dtype", x.dtype.value))
    return None if dtype is None else (TensorType(dtype, x.shape),)
