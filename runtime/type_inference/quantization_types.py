"""Types of values that are quantised and brought back: the shape stays, the element type changes.

The type of the result is told by an attribute, by the zero point, or by a default.
"""

from __future__ import annotations

from ..graph import DType, Node, Shape, TensorType
from .dims import agree, axis_of, dtype_numbered, product
from .operands import Operand, integer, operand
from .rules import type_rule
from .shape_content import ShapeContent


def _told_type(node: Node) -> tuple[bool, DType | None]:
    """Tell if the attribute ``output_dtype`` makes sense, and the type that it names, if any."""
    number = integer(node, "output_dtype", 0)
    if number == 0:
        return True, None
    told = dtype_numbered(number)
    return told is not None, told


def _fits(node: Node, x: Shape, scale: Operand, zero_point: Operand | None) -> bool:
    """True if scale and zero point may be those of a tensor of this shape."""
    if zero_point is not None and not _may_be_as_many(scale.shape, zero_point.shape):
        return False
    if integer(node, "block_size", 0) or len(scale.shape) != 1 or scale.shape[0] == 1:
        return True
    axis = axis_of(0 if len(x) == 1 else node.attributes.get("axis", 1), len(x))
    return axis is not None and agree(x[axis], scale.shape[0])


def _may_be_as_many(one: Shape, other: Shape) -> bool:
    """False for two counts of elements that are known and differ; (1,) and () are as many."""
    return agree(product(one), product(other))


@type_rule("QuantizeLinear")
def quantize(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the zero point's type, or of ``output_dtype``; else uint8."""
    x, scale, zero_point = operand(node, 0), operand(node, 1), operand(node, 2)
    makes_sense, told = _told_type(node)
    if x is None or scale is None or not makes_sense:
        return None
    if not _fits(node, x.shape, scale, zero_point):
        return None
    if zero_point is None:
        return [TensorType(told or DType.UINT8, x.shape)]
    if told not in (None, zero_point.dtype):
        return None
    return [TensorType(zero_point.dtype, x.shape)]


@type_rule("DequantizeLinear")
def dequantize(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of ``output_dtype``, else of the scale's type."""
    x, scale, zero_point = operand(node, 0), operand(node, 1), operand(node, 2)
    makes_sense, told = _told_type(node)
    if x is None or scale is None or not makes_sense:
        return None
    if not _fits(node, x.shape, scale, zero_point):
        return None
    if zero_point is not None and zero_point.dtype is not x.dtype:
        return None
    dtype = told or scale.dtype
    return None if dtype not in _DEQUANTIZED else [TensorType(dtype, x.shape)]


_DEQUANTIZED = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


@type_rule("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """The result, and the scale and zero point that were found."""
    x = operand(node, 0)
    if x is None or x.dtype is not DType.FLOAT32:
        return None
    return [
        TensorType(DType.UINT8, x.shape),
        TensorType(DType.FLOAT32, ()),
        TensorType(DType.UINT8, ()),
    ]
