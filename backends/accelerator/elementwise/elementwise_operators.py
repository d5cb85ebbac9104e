"""Elementwise operators as expressions of kernel C.

Each rule gets the operands as C expressions, the step and the type of its first operand, and gives
the expression of the result. NaN gives what it gives in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ....runtime.graph import DType
from .c_types import C_TYPES, FLOATS, INTEGERS, literal
from .fused_step import NO_OPERAND, FusedStep

__all__ = ["ELEMENTWISE_OPERATORS", "ONNX_OPERATORS", "ElementwiseOperator", "expression"]

Emit = Callable[[Sequence[str], FusedStep, DType], str]

_NUMBERS = FLOATS | INTEGERS
_ALL = frozenset(C_TYPES)
_BOOLEANS = frozenset({DType.BOOL})


@dataclass(frozen=True)
class ElementwiseOperator:
    """``dtypes`` are what its first operand may be; ``result`` what it may give, None: the same."""

    emit: Emit
    dtypes: Collection[DType]
    result: Collection[DType] | None = None


def expression(step: FusedStep, operands: Sequence[str], dtype: DType) -> str:
    """Write the result of a step; ``dtype`` is the type of its first operand."""
    return ELEMENTWISE_OPERATORS[step.op].emit(operands, step, dtype)


def _unary(pattern: str) -> Emit:
    """``{x}`` is the operand, ``{0}`` and ``{1}`` the step's numbers."""
    return lambda x, step, dtype: pattern.format(*map(literal, step.numbers), x=x[0])


def _binary(pattern: str) -> Emit:
    return lambda x, step, dtype: pattern.format(a=x[0], b=x[1])


def _fold(pattern: str, finish: Callable[[str, int], str] = lambda text, count: text) -> Emit:
    """Join any number of operands from the left."""

    def emit(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
        text = x[0]
        for other in x[1:]:
            text = pattern.format(a=text, b=other)
        return finish(text, len(x))

    return emit


def _extreme(of_floats: str, of_integers: str) -> Emit:
    """Max or Min of any number of operands; NaN wins."""

    def emit(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
        function = of_floats if dtype in FLOATS else of_integers
        text = x[0]
        for other in x[1:]:
            text = f"{function}({text}, {other})"
        return text

    return emit


def _clip(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    text = x[0]
    bounds = (*x[1:], NO_OPERAND, NO_OPERAND)[:2]
    for bound, sign, most in zip(
        bounds, "><", ("-3.402823466e+38f", "3.402823466e+38f"), strict=True
    ):
        if bound == NO_OPERAND and dtype is DType.FLOAT32:
            text = f"({most} {sign} ({text}) ? {most} : ({text}))"
        elif bound != NO_OPERAND:
            text = f"(({bound}) {sign} ({text}) ? ({bound}) : ({text}))"
    return text


def _div(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    a, b = x
    if dtype in FLOATS:
        return f"({a} / {b})"
    minus = "" if dtype.name.startswith("U") else f"{b} == -1 ? -{a} : "
    return f"({b} == 0 ? 0 : {minus}{a} / {b})"  # both trap on CPUs


def _mod(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    a, b = x
    is_fmod = bool(step.numbers[0])
    if dtype in FLOATS:
        return f"fmod({a}, {b})" if is_fmod else f"({a} - floor({a} / {b}) * {b})"
    if dtype.name.startswith("U"):
        return f"({b} == 0 ? 0 : {a} % {b})"
    rest = f"({b} == 0 || {b} == -1 ? 0 : {a} % {b})"
    if is_fmod:
        return rest
    return f"({rest} != 0 && ({rest} < 0) != ({b} < 0) ? {rest} + {b} : {rest})"


def _abs(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    if dtype in FLOATS:
        return f"fabs({x[0]})"
    return x[0] if dtype.name.startswith("U") else f"({x[0]} < 0 ? -{x[0]} : {x[0]})"


def _sign(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    below = "0" if dtype.name.startswith("U") else f"({x[0]} < 0)"
    text = f"(({x[0]} > 0) - {below})"
    return f"(isnan({x[0]}) ? {x[0]} : (float){text})" if dtype in FLOATS else text


def _gelu(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    (v,) = x
    if not step.numbers[0]:
        return f"(0.5f * {v} * (1.0f + erf({v} * {literal(math.sqrt(0.5))})))"
    inner = f"{literal(math.sqrt(2 / math.pi))} * ({v} + 0.044715f * {v} * {v} * {v})"
    return f"(0.5f * {v} * (1.0f + tanh({inner})))"


def _is_inf(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    signs = [sign for sign, wanted in zip("<>", step.numbers, strict=True) if wanted]
    found = " || ".join(f"{x[0]} {sign} 0.0f" for sign in signs) or "0"
    return f"(isinf({x[0]}) && ({found}))"


def _shift(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    bits = dtype.item_bytes * 8
    sign = "<<" if step.numbers[0] else ">>"
    return f"({x[1]} >= {bits} ? 0 : {x[0]} {sign} {x[1]})"


def _cast(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    if step.dtype is DType.BOOL:
        return f"({x[0]} != 0)"
    return f"(({C_TYPES[step.dtype].register}){x[0]})"


def _pow(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    return f"pow({x[0]}, (float)({x[1]}))"


def _mean(text: str, count: int) -> str:
    return f"(({text}) / {literal(count)})"


def _where(x: Sequence[str], step: FusedStep, dtype: DType) -> str:
    return f"({x[0]} ? {x[1]} : {x[2]})"


_SIGMOID = "(1.0f / (1.0f + exp(-({x}))))"
_SOFTPLUS = "(fmax({x}, 0.0f) + log1p(exp(-fabs({x}))))"

_FLOAT_UNARY: Mapping[str, str] = {
    "Acos": "acos({x})",
    "Acosh": "acosh({x})",
    "Asin": "asin({x})",
    "Asinh": "asinh({x})",
    "Atan": "atan({x})",
    "Atanh": "atanh({x})",
    "Ceil": "ceil({x})",
    "Celu": "({x} > 0.0f ? {x} : {0} * expm1({x} / {0}))",
    "Cos": "cos({x})",
    "Cosh": "cosh({x})",
    "Elu": "({x} > 0.0f ? {x} : {0} * expm1({x}))",
    "Erf": "erf({x})",
    "Exp": "exp({x})",
    "Floor": "floor({x})",
    "HardSigmoid": "least(greatest({0} * {x} + {1}, 0.0f), 1.0f)",
    "HardSwish": "({x} * least(greatest({x} / 6.0f + 0.5f, 0.0f), 1.0f))",
    "LeakyRelu": "({x} < 0.0f ? {0} * {x} : {x})",
    "Log": "log({x})",
    "Mish": "({x} * tanh(" + _SOFTPLUS + "))",
    "Reciprocal": "(1.0f / {x})",
    "Round": "rint({x})",
    "Selu": "({1} * ({x} > 0.0f ? {x} : {0} * expm1({x})))",
    "Shrink": "({x} < -{0} ? {x} + {1} : ({x} > {0} ? {x} - {1} : 0.0f))",
    "Sigmoid": _SIGMOID,
    "Sin": "sin({x})",
    "Sinh": "sinh({x})",
    "Softplus": _SOFTPLUS,
    "Softsign": "({x} / (1.0f + fabs({x})))",
    "Sqrt": "sqrt({x})",
    "Swish": "({x} / (1.0f + exp(-{0} * {x})))",
    "Tan": "tan({x})",
    "Tanh": "tanh({x})",
    "ThresholdedRelu": "({x} > {0} ? {x} : 0.0f)",
}

ELEMENTWISE_OPERATORS: Mapping[str, ElementwiseOperator] = {
    **{op: ElementwiseOperator(_unary(pattern), FLOATS) for op, pattern in _FLOAT_UNARY.items()},
    "Abs": ElementwiseOperator(_abs, _NUMBERS),
    "Add": ElementwiseOperator(_binary("({a} + {b})"), _NUMBERS),
    "And": ElementwiseOperator(_binary("({a} && {b})"), _BOOLEANS),
    "BitShift": ElementwiseOperator(_shift, INTEGERS),
    "BitwiseAnd": ElementwiseOperator(_binary("({a} & {b})"), INTEGERS),
    "BitwiseNot": ElementwiseOperator(_unary("(~{x})"), INTEGERS),
    "BitwiseOr": ElementwiseOperator(_binary("({a} | {b})"), INTEGERS),
    "BitwiseXor": ElementwiseOperator(_binary("({a} ^ {b})"), INTEGERS),
    "Cast": ElementwiseOperator(_cast, _ALL, _ALL),
    "Clip": ElementwiseOperator(_clip, _NUMBERS),
    "Div": ElementwiseOperator(_div, _NUMBERS),
    "Equal": ElementwiseOperator(_binary("({a} == {b})"), _ALL, _BOOLEANS),
    "Gelu": ElementwiseOperator(_gelu, FLOATS),
    "Greater": ElementwiseOperator(_binary("({a} > {b})"), _NUMBERS, _BOOLEANS),
    "GreaterOrEqual": ElementwiseOperator(_binary("({a} >= {b})"), _NUMBERS, _BOOLEANS),
    "IsInf": ElementwiseOperator(_is_inf, FLOATS, _BOOLEANS),
    "IsNaN": ElementwiseOperator(_unary("(isnan({x}) != 0)"), FLOATS, _BOOLEANS),
    "Less": ElementwiseOperator(_binary("({a} < {b})"), _NUMBERS, _BOOLEANS),
    "LessOrEqual": ElementwiseOperator(_binary("({a} <= {b})"), _NUMBERS, _BOOLEANS),
    "Max": ElementwiseOperator(_extreme("greatest", "max"), _NUMBERS),
    "Mean": ElementwiseOperator(_fold("({a} + {b})", _mean), FLOATS),
    "Min": ElementwiseOperator(_extreme("least", "min"), _NUMBERS),
    "Mod": ElementwiseOperator(_mod, _NUMBERS),
    "Mul": ElementwiseOperator(_binary("({a} * {b})"), _NUMBERS),
    "Neg": ElementwiseOperator(_unary("(-{x})"), _NUMBERS),
    "Not": ElementwiseOperator(_unary("(!{x})"), _BOOLEANS),
    "Or": ElementwiseOperator(_binary("({a} || {b})"), _BOOLEANS),
    "PRelu": ElementwiseOperator(_binary("({a} < 0 ? {a} * {b} : {a})"), _NUMBERS),
    "Pow": ElementwiseOperator(_pow, FLOATS),
    "Relu": ElementwiseOperator(_unary("({x} < 0 ? 0 : {x})"), _NUMBERS),
    "Scale": ElementwiseOperator(_unary("({x} * {0})"), FLOATS),
    "Sign": ElementwiseOperator(_sign, _NUMBERS),
    "Sub": ElementwiseOperator(_binary("({a} - {b})"), _NUMBERS),
    "Sum": ElementwiseOperator(_fold("({a} + {b})"), FLOATS),
    "Where": ElementwiseOperator(_where, _BOOLEANS, _ALL),
    "Xor": ElementwiseOperator(_binary("({a} != {b})"), _BOOLEANS),
}
"""By operator of ONNX; ``Scale``, a multiplication by a number, is our own."""

ONNX_OPERATORS = frozenset(ELEMENTWISE_OPERATORS) - {"Scale"}
"""Those that a model's nodes may be."""
