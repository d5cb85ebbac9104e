"""Types of values that are quantised and brought back: the shape stays, the element type changes.

The type of the result comes from an attribute, the zero point, or a default.
"""

from __future__ import annotations

from ...graph import Dim, DType, Node, Shape, TensorType, shape_text
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import agree, axis_of, ceil_divide, product
from ..operands import Operand, element_type, integer, operand, require_shape, require_type
from ..rules import type_rule


def _declared_type(node: Node) -> DType | None:
    """Return the type that the attribute ``output_dtype`` names, if any."""
    is_told = integer(node, "output_dtype", 0) != 0
    return element_type(node, "output_dtype") if is_told else None


def _check(node: Node, x: Shape, scale: Operand, zero_point: Operand | None) -> None:
    """Raise unless scale and zero point may be those of a tensor of this shape."""
    if zero_point is not None and not _are_alike(scale.shape, zero_point.shape):
        raise ContradictionError(
            f"scale {shape_text(scale.shape)} and zero point {shape_text(zero_point.shape)} have "
            f"to be as many"
        )
    block = integer(node, "block_size", 0) or 0
    if block < 0:
        raise ContradictionError(f"its block_size is {block}, below zero")
    if block:
        axis = axis_of(node.attributes.get("axis", 1), len(x))
        require_shape("the scale", scale, *_blocks(x, axis, block))
    elif len(scale.shape) == 1 and scale.shape[0] != 1:
        axis = axis_of(0 if len(x) == 1 else node.attributes.get("axis", 1), len(x))
        if not agree(x[axis], scale.shape[0]):
            raise ContradictionError(
                f"there are {scale.shape[0]} scales for the {x[axis]} along axis {axis}"
            )
    elif isinstance(count := product(scale.shape), int) and count != 1 and len(scale.shape) > 1:
        raise ContradictionError(f"scales {shape_text(scale.shape)} need a block_size")
    elif len(scale.shape) > max(len(x), 1):
        raise ContradictionError(
            f"its scale {shape_text(scale.shape)} has more axes than its input {shape_text(x)}"
        )


def _are_alike(scale: Shape, zero_point: Shape) -> bool:
    """Return whether they may be of one shape; one number of each may have any number of axes."""
    counts = product(scale), product(zero_point)
    if not agree(*counts):
        return False
    if not any(isinstance(count, int) and count != 1 for count in counts):
        return True
    return len(scale) == len(zero_point) and all(map(agree, scale, zero_point))


def _blocks(x: Shape, axis: int, block: int) -> tuple[Dim, ...]:
    """Count the blocks along an axis; the other lengths stay."""
    length = x[axis]
    count = ceil_divide(length, block) if isinstance(length, int) else None
    return (*x[:axis], count, *x[axis + 1 :])


@type_rule("QuantizeLinear")
def quantize(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the zero point's type, or of ``output_dtype``; else uint8."""
    x, scale, zero_point = operand(node, 0), operand(node, 1), operand(node, 2)
    declared = _declared_type(node)
    if x is None or scale is None:
        return None
    _check(node, x.shape, scale, zero_point)
    if zero_point is None:
        return [TensorType(declared or DType.UINT8, x.shape)]
    if declared not in (None, zero_point.dtype):
        raise ContradictionError(
            f"its zero point is {zero_point.dtype.label}, and its result is to be something else"
        )
    return [TensorType(zero_point.dtype, x.shape)]


@type_rule("DequantizeLinear")
def dequantize(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of ``output_dtype``, else of the scale's type."""
    x, scale, zero_point = operand(node, 0), operand(node, 1), operand(node, 2)
    declared = _declared_type(node)
    if x is None or scale is None:
        return None
    _check(node, x.shape, scale, zero_point)
    if zero_point is not None and zero_point.dtype is not x.dtype:
        raise ContradictionError(
            f"its input is {x.dtype.label} and its zero point {zero_point.dtype.label}"
        )
    dtype = declared or scale.dtype
    return None if dtype not in _DEQUANTIZED else [TensorType(dtype, x.shape)]


_DEQUANTIZED = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


@type_rule("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """The result, and the scale and zero point that were found."""
    x = operand(node, 0)
    if x is None:
        return None
    require_type("inputs", x, (DType.FLOAT32,))
    return [
        TensorType(DType.UINT8, x.shape),
        TensorType(DType.FLOAT32, ()),
        TensorType(DType.UINT8, ()),
    ]
