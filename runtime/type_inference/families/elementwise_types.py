"""Types of what is computed element by element, and of what keeps its input's shape."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import agree, axis_of, broadcast, product
from ..operands import (
    Operand,
    element_type,
    integer,
    operand,
    require_rank,
    require_same_type,
    require_spread,
    require_type,
)
from ..rules import type_rule

Types = Sequence[TensorType] | None

_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
"""Of shares, which whole numbers cannot hold."""


@type_rule(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu",
    "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
def _like_first(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    return None if x is None else (TensorType(x.dtype, x.shape),)


@type_rule("Clip")
def _clip(node: Node, contents: ShapeContent) -> Types:
    """Bounds are one number each; old exporters write them as lists of one."""
    x = operand(node, 0)
    if x is None:
        return None
    for index, what in ((1, "the lower bound"), (2, "the upper bound")):
        bound = operand(node, index)
        if bound is not None:
            require_same_type(f"the input and {what}", x, bound)
            _require_one(what, bound)
    return (TensorType(x.dtype, x.shape),)


@type_rule("PRelu")
def _prelu(node: Node, contents: ShapeContent) -> Types:
    """Slopes may also be one for each channel, as before opset 7."""
    x, slope = operand(node, 0), operand(node, 1)
    if x is None or slope is None:
        return None
    require_same_type("the input and the slope", x, slope)
    is_of_channels = (
        len(slope.shape) == 1 and len(x.shape) > 1 and agree(slope.shape[0], x.shape[1])
    )
    if not is_of_channels:
        require_spread("the slope", slope, x.shape)
    return (TensorType(x.dtype, x.shape),)


@type_rule("CumProd", "CumSum")
def _cumulated(node: Node, contents: ShapeContent) -> Types:
    x, axis = operand(node, 0), operand(node, 1)
    if x is None or axis is None:
        return None
    require_type("axes", axis, (DType.INT32, DType.INT64))
    _require_one("the axis", axis)
    for number in contents.integers(node, 1) or ():
        axis_of(number, len(x.shape))
    return (TensorType(x.dtype, x.shape),)


def _require_one(what: str, given: Operand) -> None:
    count = product(given.shape)
    if len(given.shape) > 1 or (isinstance(count, int) and count != 1):
        raise ContradictionError(f"{what} has to be one number, and has {count or 'any'} elements")


@type_rule("Hardmax", "LogSoftmax", "Softmax")
def _along_axis(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None:
        return None
    axis_of(node.attributes.get("axis", -1), len(x.shape))
    if node.op_type != "Hardmax":
        require_type("inputs", x, _FLOATS)
    return (TensorType(x.dtype, x.shape),)


@type_rule("Trilu")
def _triangle(node: Node, contents: ShapeContent) -> Types:
    x, diagonal = operand(node, 0), operand(node, 1)
    if x is None:
        return None
    require_rank("the input", x, 2, -1)
    if diagonal is not None:
        require_type("diagonals", diagonal, (DType.INT64,))
        _require_one("the diagonal", diagonal)
    return (TensorType(x.dtype, x.shape),)


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
    "Add", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Max", "Mean", "Min", "Mul",
    "StringConcat", "Sub", "Sum",
)  # fmt: skip
def _broadcast_of_one_type(node: Node, contents: ShapeContent) -> Types:
    return _broadcast(node)


@type_rule("Mod")
def modulo(node: Node, contents: ShapeContent) -> Types:
    """Broadcast; of floats only the remainder with the sign of the dividend is defined."""
    x = operand(node, 0)
    if x is not None and x.dtype.is_floating and not integer(node, "fmod", 0):
        raise ContradictionError(f"it is of {x.dtype} and its fmod is 0; ONNX wants 1 there")
    return _broadcast(node)


@type_rule("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def _comparison(node: Node, contents: ShapeContent) -> Types:
    types = _broadcast(node)
    return None if types is None else (TensorType(DType.BOOL, types[0].shape),)


@type_rule("And", "Or", "Xor")
def _logic(node: Node, contents: ShapeContent) -> Types:
    first = operand(node, 0)
    if first is not None:
        require_type("operands", first, (DType.BOOL,))
    return _broadcast(node)


@type_rule("Pow")
def _power(node: Node, contents: ShapeContent) -> Types:
    """The exponent may have another type; the result has that of the base."""
    base, exponent = operand(node, 0), operand(node, 1)
    if base is None or exponent is None:
        return None
    return (TensorType(base.dtype, broadcast((base.shape, exponent.shape))),)


@type_rule("Where")
def _where(node: Node, contents: ShapeContent) -> Types:
    condition, chosen, other = operand(node, 0), operand(node, 1), operand(node, 2)
    if condition is None or chosen is None or other is None:
        return None
    require_type("conditions", condition, (DType.BOOL,))
    require_same_type("what is chosen from", chosen, other)
    shape = broadcast((condition.shape, chosen.shape, other.shape))
    return (TensorType(chosen.dtype, shape),)


def _broadcast(node: Node) -> Types:
    """Broadcast all inputs, which must be of one element type."""
    first = operand(node, 0)
    if first is None:
        return None
    known = TensorType(first.dtype, first.shape)
    if all(value is not None and value.type == known for value in node.inputs):
        return (known,)
    shapes = []
    for index in range(len(node.inputs)):
        x = operand(node, index)
        if x is None:
            return None
        require_same_type("its inputs", first, x)
        shapes.append(x.shape)
    return (TensorType(first.dtype, broadcast(shapes)),)


@type_rule("BitCast", "Cast")
def _cast(node: Node, contents: ShapeContent) -> Types:
    x, dtype = operand(node, 0), element_type(node, "to")
    return None if x is None or dtype is None else (TensorType(dtype, x.shape),)


@type_rule("CastLike")
def _cast_like(node: Node, contents: ShapeContent) -> Types:
    x, like = operand(node, 0), operand(node, 1)
    return None if x is None or like is None else (TensorType(like.dtype, x.shape),)
