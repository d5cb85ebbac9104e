"""Operators that compute each element from the elements at its place, with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph import Node
from .size import ONE, Size
from .traced_value import (
    NotApartError,
    Rule,
    Traced,
    axis_at,
    in_rows,
    integer,
    need_free,
    result_dims,
)

__all__ = ["ELEMENTWISE_RULES", "broadcast"]

Inputs = Sequence[Traced | None]

_OPERATORS = (
    *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift"),
    *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip"),
    *("Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater"),
    *("GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not"),
    *("Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh"),
    *("ThresholdedRelu", "Where", "Xor"),
)


def broadcast(node: Node, operands: Sequence[Traced]) -> Traced:
    """Broadcast operands, some of which have rows, as numpy does.

    The rows have to meet rows, or one element that serves all: what has another length would be
    combined with some rows only, or spread one row over all.
    """
    rank = max(operand.rank for operand in operands)
    having_rows = [operand for operand in operands if operand.axis is not None]
    places = {operand.row_axis + rank - operand.rank for operand in having_rows}
    rows = {operand.rows for operand in having_rows}
    if len(places) > 1 or len(rows) > 1:
        raise NotApartError("it combines the rows of its inputs with one another")
    (place,) = places
    (length,) = rows
    for operand in operands:
        own = place - (rank - operand.rank)
        if operand.axis is None and own >= 0 and operand.shape[own] != ONE:
            raise NotApartError("it combines rows with a tensor that is not one row")
    known: dict[int, Size] = {place: length}
    for axis in range(rank):
        if axis != place:
            met = [
                operand.shape[axis - rank + operand.rank]
                for operand in operands
                if axis >= rank - operand.rank
            ]
            found = _met(met)
            if found is not None:
                known[axis] = found
    return Traced(result_dims(node.outputs[0], rank, known), place)


def _met(sizes: Sequence[Size]) -> Size | None:
    """Return the length that broadcast lengths make, where it is certain."""
    others = list(dict.fromkeys(size for size in sizes if size != ONE))
    if len(others) <= 1:
        return others[0] if others else ONE
    return next((size for size in others if size.known is not None), None)


def _elementwise(node: Node, inputs: Inputs) -> Traced:
    return broadcast(node, [item for item in inputs if item is not None])


def _like_first(node: Node, inputs: Inputs) -> Traced:
    """Take what is computed from the first input alone, by parameters that serve all rows."""
    x = in_rows(inputs)
    need_free(inputs)
    return Traced(x.dims, x.axis)


def _cast_like(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    return Traced(x.dims, x.axis)


def _dropout(node: Node, inputs: Inputs) -> Traced:
    mode = node.input_at(2)
    if mode is not None and (mode.constant is None or mode.constant.any()):
        raise NotApartError("it may be in training mode")
    return _like_first(node, inputs)


def _quantized(node: Node, inputs: Inputs) -> Traced:
    """Take scales for all elements, or for the places along another axis than the rows'."""
    x = in_rows(inputs)
    scale = inputs[1]
    is_one = scale is None or all(size == ONE for size in scale.shape)
    if not is_one and axis_at(integer(node, "axis", 1), x.rank) == x.axis:
        raise NotApartError("its scales differ from row to row")
    return _like_first(node, inputs)


ELEMENTWISE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_OPERATORS, _elementwise),
    "CastLike": _cast_like,
    "DequantizeLinear": _quantized,
    "Dropout": _dropout,
    "QuantizeLinear": _quantized,
}
"""By operator of ONNX."""
