"""Types of shapes as tensors, and of tensors that are made from a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import DType, Node, TensorType, shape_text
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import MOST_LENGTH, ceil_divide, product
from ..operands import element_type, integer, operand, require_rank, require_type
from ..rules import type_rule

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
    listed = operand(node, 0)
    if listed is not None:
        require_type("lengths", listed, (DType.INT64,))
        require_rank("the list of lengths", listed, 1)
    shape, value = contents.dims(node, 0), node.attributes.get("value")
    if isinstance(value, np.ndarray) and value.size != 1:
        raise ContradictionError(f"its value has to be one number, and there are {value.size}")
    if shape is None and listed is not None and isinstance(listed.shape[0], int):
        shape = (None,) * listed.shape[0]
    if shape is None:
        return None
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise ContradictionError(f"{shape_text(shape)} is no shape: a length is below zero")
    if value is None:
        return (TensorType(DType.FLOAT32, shape),)
    return (TensorType(DType.of(value.dtype), shape),) if isinstance(value, np.ndarray) else None


@type_rule("Range")
def _range(node: Node, contents: ShapeContent) -> Types:
    first = operand(node, 0)
    bounds = [contents.of_input(node, index) for index in range(3)]
    numbers = [contents.numbers(node, index) for index in range(3)]
    start, limit, delta = (item[0] if item and len(item) == 1 else None for item in numbers)
    if first is None:
        return None
    for index, what in enumerate(("start", "limit", "step")):
        given = operand(node, index)
        count = None if given is None else product(given.shape)
        if isinstance(count, int) and count != 1:
            raise ContradictionError(f"its {what} has to be one number, and has {count} elements")
        if given is not None and given.dtype is not first.dtype:
            raise ContradictionError(
                f"start, limit and step have to be of one element type, and are "
                f"{first.dtype.label} and {given.dtype.label}"
            )
    if delta == 0:
        raise ContradictionError("its step is 0, which leads nowhere")
    if start is not None and limit is not None and delta is not None:
        return (TensorType(first.dtype, (_count(start, limit, delta),)),)
    if None in bounds:
        return (TensorType(first.dtype, (None,)),)
    end = contents.dims(node, 1)
    length = end[0] if end and start == 0 and delta == 1 else None
    return (TensorType(first.dtype, (length,)),)


def _count(start: float, limit: float, delta: float) -> int:
    """Count the steps from start to limit; raises if there are more than a length can be."""
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int):
        count = ceil_divide(limit - start, delta)
        is_too_long = count > MOST_LENGTH
    else:
        steps = (limit - start) / delta
        is_too_long = not -math.inf < steps <= MOST_LENGTH
        count = 0 if is_too_long else math.ceil(steps)
    if is_too_long:
        raise ContradictionError(f"from {start} to {limit} are more steps of {delta} than fit")
    return max(count, 0)


@type_rule("EyeLike")
def _eye_like(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the input", x, 2)
    dtype = element_type(node, "dtype", x.dtype)
    return None if dtype is None else (TensorType(dtype, x.shape),)
