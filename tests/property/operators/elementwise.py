"""Elementwise operators, and fused groups of them, which devices compute in one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis.extra import numpy as arrays
from onnx import helper

from property.operators.cases import DTYPES, Array, Case, fused, generator, is_float

Attributes = Callable[[Case], dict[str, Any]]


def _quarters(*names: str) -> Attributes:
    """Draw small positive numbers."""
    return lambda case: {name: case.number(1, 8) / 4 for name in names}


_ATTRIBUTES: Mapping[str, Attributes] = {
    "BitShift": lambda case: {"direction": case.one_of(["LEFT", "RIGHT"])},
    "Celu": _quarters("alpha"),
    "Elu": _quarters("alpha"),
    "Gelu": lambda case: {"approximate": case.one_of(["none", "tanh"])},
    "HardSigmoid": _quarters("alpha", "beta"),
    "IsInf": lambda case: {
        "detect_negative": case.number(0, 1),
        "detect_positive": case.number(0, 1),
    },
    "LeakyRelu": _quarters("alpha"),
    "Selu": _quarters("alpha", "gamma"),
    "Shrink": _quarters("bias", "lambd"),
    "Swish": _quarters("alpha"),
    "ThresholdedRelu": _quarters("alpha"),
}

FUNCTIONS = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu"),
    *("Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf"),
    *("IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu"),
    *("Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish"),
    *("Tan", "Tanh", "ThresholdedRelu"),
)
BINARY = (
    *("Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Or", "Sub", "Xor"),
)


def attributes_of(case: Case, op_type: str) -> dict[str, Any]:
    """Draw the attributes of an operator, or leave those that have a default to it."""
    draw_attributes = _ATTRIBUTES.get(op_type)
    if draw_attributes is None or (op_type != "BitShift" and case.flag()):
        return {}
    return draw_attributes(case)


def broadcasting(case: Case, count: int, most: int = 5) -> Sequence[tuple[int, ...]]:
    """Draw shapes that broadcast; one of the axes that all have may be long."""
    drawn = case.draw(
        arrays.mutually_broadcastable_shapes(
            num_shapes=count, min_side=0, max_side=most, max_dims=4
        )
    )
    return [tuple(shape) for shape in drawn.input_shapes]


@generator(*FUNCTIONS)
def draw_function(case: Case, op_type: str) -> None:
    x = case.array(case.shape((0, 4)), case.dtype())
    if op_type != "Gelu":  # its product at -infinity hangs on the last bit of tanh
        x = case.with_specials(x)
    case.give(op_type, case.feed(x, known=False), **attributes_of(case, op_type))


@generator(*BINARY)
def draw_binary(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    x, z = (case.with_specials(case.array(s, dtype)) for s in broadcasting(case, 2))
    is_division = op_type == "Div" and dtype.kind in "iu"
    names = [case.feed(x, known=False), case.feed(_without_zeros(z) if is_division else z)]
    if not is_division and case.flag():
        names.reverse()
    case.give(op_type, *names, **attributes_of(case, op_type))


@generator("Mod")
def draw_mod(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    x, z = (case.array(shape, dtype) for shape in broadcasting(case, 2))
    fmod = 1 if is_float(dtype) else case.number(0, 1)
    case.give(op_type, case.feed(x, known=False), case.feed(_without_zeros(z)), fmod=fmod)


def _without_zeros(divisors: Array) -> Array:
    """Replace zeros, by which C cannot divide integers; see the unit tests."""
    return np.where(divisors == 0, divisors.dtype.type(3), divisors)


@generator("Pow")
def draw_pow(case: Case, op_type: str) -> None:
    x_shape, z_shape = broadcasting(case, 2)
    x = case.array(x_shape, case.dtype())
    least = -3 if is_float(x.dtype) else 0
    z = case.array(z_shape, case.one_of([t for t in DTYPES if t.kind != "b"]), least, 3)
    case.give(op_type, case.feed(x, known=False), case.feed(z))


@generator("Max", "Mean", "Min", "Sum")
def draw_fold(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    shapes = broadcasting(case, case.number(1, 4))
    values = [case.with_specials(case.array(shape, dtype)) for shape in shapes]
    names = [case.feed(x, known=False if index == 0 else None) for index, x in enumerate(values)]
    case.give(op_type, *names)


@generator("Clip")
def draw_clip(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    x = case.with_specials(case.array(case.shape(), dtype))
    bounds = [case.feed(case.array((), dtype)) if case.flag() else "" for _ in range(2)]
    case.give(op_type, case.feed(x, known=False), *bounds)


@generator("PRelu")
def draw_prelu(case: Case, op_type: str) -> None:
    dtype = case.dtype()
    shape = case.shape((1, 4))
    slopes = [case.one_of([1, length]) for length in shape][case.number(0, len(shape)) :]
    x = case.with_specials(case.array(shape, dtype))
    case.give(op_type, case.feed(x, known=False), case.feed(case.array(slopes, dtype)))


@generator("Where")
def draw_where(case: Case, op_type: str) -> None:
    shapes = broadcasting(case, 3)
    dtype = case.one_of(DTYPES)
    names = [case.feed(case.array(shapes[0], np.bool_))]
    names += [case.feed(case.with_specials(case.array(shape, dtype))) for shape in shapes[1:]]
    if not case.inputs:
        names[1] = case.feed(case.constants.pop(names[1]), known=False)
    case.give(op_type, *names)


@generator("Cast")
def draw_cast(case: Case, op_type: str) -> None:
    source, target = case.dtype(), case.one_of(DTYPES)
    low = 0 if is_float(source) and target.kind == "u" else -5  # else C leaves it open
    x = case.array(case.shape(), source, low)
    to = helper.np_dtype_to_tensor_dtype(target)
    case.give(op_type, case.feed(x, known=False), to=to)


_STEPS = (
    "Abs",
    "Neg",
    "Relu",
    "Tanh",
    "Sigmoid",
    "Softplus",
    "LeakyRelu",
    "HardSwish",
    "Clip",
    "Erf",
)
_JOINTS = ("Add", "Sub", "Mul", "Max", "Min", "Mean", "PRelu")


def draw_steps(case: Case, start: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Add elementwise operators behind a value of this shape; the last one's result is given."""
    made = [start]
    for _ in range(case.number(1, 4)):
        if case.flag():
            op_type = case.one_of(_STEPS)
            made += case.node(op_type, made[-1], **attributes_of(case, op_type))
            continue
        op_type = case.one_of(_JOINTS)
        if case.flag() and op_type != "PRelu":
            other = case.one_of(made)
        else:
            lengths = [case.one_of([1, length]) for length in shape][case.number(0, len(shape)) :]
            other = case.feed(case.array(lengths, dtype, -2, 2))
        made += case.node(op_type, made[-1], other)
    case.outputs.append(made[-1])


@fused("FusedElementwise")
def draw_group(case: Case, op_type: str) -> None:
    dtype = case.float_dtype()
    shape = case.shape((1, 4))
    (first,) = case.node("Neg", case.feed(case.array(shape, dtype), known=False))
    draw_steps(case, first, shape, dtype)
