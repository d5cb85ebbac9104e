"""Types of what is computed element by element, and of what keeps its input's shape."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import DType, Node, TensorType
from .dims import axis_of, broadcast, dtype_numbered
from .operands import operand
from .rules import type_rule
from .shape_content import ShapeContent

Types = Sequence[TensorType] | None


@type_rule(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu",
    "Clip", "Cos", "Cosh", "CumProd", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "PRelu",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
def _like_first(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    return None if x is None else (TensorType(x.dtype, x.shape),)


@type_rule("Hardmax", "LogSoftmax", "Softmax")
def _along_axis(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None or axis_of(node.attributes.get("axis", -1), len(x.shape)) is None:
        return None
    return (TensorType(x.dtype, x.shape),)


@type_rule("Trilu")
def _triangle(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    return None if x is None or len(x.shape) < 2 else (TensorType(x.dtype, x.shape),)


@type_rule("Dropout")
def _dropout(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None:
        return None
    return TensorType(x.dtype, x.shape), TensorType(DType.BOOL, x.shape)


@type_rule("IsInf", "IsNaN", "Not", "RegexFullMatch")
def _truth_of_first(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    return None if x is None else (TensorType(DType.BOOL, x.shape),)


@type_rule(
    "Add", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Max", "Mean", "Min", "Mod",
    "Mul", "StringConcat", "Sub", "Sum",
)  # fmt: skip
def _broadcast_of_one_type(node: Node, contents: ShapeContent) -> Types:
    return _broadcast(node)


@type_rule("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def _comparison(node: Node, contents: ShapeContent) -> Types:
    types = _broadcast(node)
    return None if types is None else (TensorType(DType.BOOL, types[0].shape),)


@type_rule("And", "Or", "Xor")
def _logic(node: Node, contents: ShapeContent) -> Types:
    types = _broadcast(node)
    return types if types is not None and types[0].dtype is DType.BOOL else None


@type_rule("Pow")
def _power(node: Node, contents: ShapeContent) -> Types:
    """The exponent may have another type; the result has that of the base."""
    base, exponent = operand(node, 0), operand(node, 1)
    if base is None or exponent is None:
        return None
    shape = broadcast((base.shape, exponent.shape))
    return None if shape is None else (TensorType(base.dtype, shape),)


@type_rule("Where")
def _where(node: Node, contents: ShapeContent) -> Types:
    condition, chosen, other = operand(node, 0), operand(node, 1), operand(node, 2)
    if condition is None or chosen is None or other is None or chosen.dtype is not other.dtype:
        return None
    if condition.dtype is not DType.BOOL:
        return None
    shape = broadcast((condition.shape, chosen.shape, other.shape))
    return None if shape is None else (TensorType(chosen.dtype, shape),)


def _broadcast(node: Node) -> Types:
    """Broadcast all inputs, which must be of one element type."""
    first = operand(node, 0)
    if first is None:
        return None
    shapes = []
    for index in range(len(node.inputs)):
        x = operand(node, index)
        if x is None or x.dtype is not first.dtype:
            return None
        shapes.append(x.shape)
    shape = broadcast(shapes)
    return None if shape is None else (TensorType(first.dtype, shape),)


@type_rule("Cast")
def _cast(node: Node, contents: ShapeContent) -> Types:
    x, dtype = operand(node, 0), dtype_numbered(node.attributes.get("to"))
    return None if x is None or dtype is None else (TensorType(dtype, x.shape),)


@type_rule("CastLike")
def _cast_like(node: Node, contents: ShapeContent) -> Types:
    x, like = operand(node, 0), operand(node, 1)
    return None if x is None or like is None else (TensorType(like.dtype, x.shape),)
