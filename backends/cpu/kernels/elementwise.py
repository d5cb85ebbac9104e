"""Elementwise operators of one float32 tensor, and fused chains of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import c_float, c_int

import numpy as np

from ....runtime.graph import Node, Value
from ..onednn.bindings import ARG, ELTWISE, FORWARD_INFERENCE, Attributes
from ..onednn.post_ops import CPU_DOMAIN, UNARY, PostOp, loses_nan, parse_post_ops
from ..plans.elementwise_chain import chain_axes
from ..plans.operand_layout import Operand
from ..plans.plan_builder import PlanBuilder
from .chains import lower_chain, result_dtype
from .registry import FLOATS, INTEGERS, kernel

__all__ = ["lower_unary"]

_FROM_ONEDNN = frozenset(
    {
        "abs",
        "elu",
        "gelu_tanh",
        "hardswish",
        "mish",
        "pow",
        "round",
        "sigmoid",
        "softplus",
        "sqrt",
        "square",
        "swish",
        "tanh",
    }
)
"""Where oneDNN's functions are as fast and as right as the native ones."""


def _of(name: str, *numbers: float) -> Callable[[Node], PostOp]:
    step = _step(name, *numbers)
    return lambda node: step


def _step(name: str, *numbers: float) -> PostOp:
    if name in UNARY:
        return PostOp.unary(name, *numbers)
    alpha, beta = (*numbers, 0.0, 0.0)[:2]
    return PostOp(name, alpha, beta)


def _with(name: str, **defaults: float) -> Callable[[Node], PostOp]:
    """Make a step whose numbers are attributes, in the order of ``defaults``."""

    def made(node: Node) -> PostOp:
        numbers = (node.attributes.get(key, number) for key, number in defaults.items())
        return _step(name, *(float(np.float32(number)) for number in numbers))

    return made


def _gelu(node: Node) -> PostOp:
    is_tanh = node.text("approximate", "none") == "tanh"
    return PostOp.unary("gelu_tanh" if is_tanh else "gelu_erf")


_UNARY: Mapping[str, Callable[[Node], PostOp]] = {
    "Abs": _of("abs"),
    "Acos": _of("acos"),
    "Acosh": _of("acosh"),
    "Asin": _of("asin"),
    "Asinh": _of("asinh"),
    "Atan": _of("atan"),
    "Atanh": _of("atanh"),
    "Ceil": _of("ceil"),
    "Celu": _with("celu", alpha=1.0),
    "Cos": _of("cos"),
    "Cosh": _of("cosh"),
    "Elu": _with("elu", alpha=1.0),
    "Erf": _of("erf"),
    "Exp": _of("exp"),
    "Floor": _of("floor"),
    "Gelu": _gelu,
    "HardSigmoid": _with("hardsigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _of("hardswish"),
    "IsInf": _with("isinf", detect_negative=1, detect_positive=1),
    "IsNaN": _of("isnan"),
    "LeakyRelu": _with("relu", alpha=0.01),
    "Log": _of("log"),
    "Mish": _of("mish"),
    "Neg": _of("linear", -1.0),
    "Reciprocal": _of("pow", 1.0, -1.0),
    "Relu": _of("relu"),
    "Round": _of("round"),
    "Selu": _with("selu", alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shrink": _with("shrink", lambd=0.5, bias=0.0),
    "Sigmoid": _of("sigmoid"),
    "Sign": _of("sign"),
    "Sin": _of("sin"),
    "Sinh": _of("sinh"),
    "Softplus": _of("softplus"),
    "Softsign": _of("softsign"),
    "Sqrt": _of("sqrt"),
    "Swish": _with("swish", alpha=1.0),
    "Tan": _of("tan"),
    "Tanh": _of("tanh"),
    "ThresholdedRelu": _with("thresholded", alpha=1.0),
}
_OF_INTEGERS: Mapping[str, str] = {"Abs": "abs", "Neg": "neg", "Relu": "relu", "Sign": "sign"}


@kernel(*(op_type for op_type in _UNARY if op_type not in _OF_INTEGERS))
@kernel(*_OF_INTEGERS, dtypes=FLOATS | INTEGERS)
def lower_unary(node: Node, builder: PlanBuilder) -> None:
    """Lower one unary operator, in the layout that its input has; in place where it may."""
    (source,) = node.inputs
    (result,) = node.outputs
    assert source is not None
    if builder.dtype(source) in INTEGERS:
        step = PostOp(_OF_INTEGERS[node.op_type])
        lower_chain(builder, [source], result, [step], kernel="integer_chain")
        return
    step = _UNARY[node.op_type](node)
    operand = builder.operand(source)
    if _suits_onednn(builder, step, operand, result):
        _lower_by_onednn(builder, step, operand, result)
    else:
        lower_chain(builder, [source], result, [step])


@kernel("Eltwise", domain=CPU_DOMAIN)
def lower_fused_chain(node: Node, builder: PlanBuilder) -> None:
    """Lower a chain of operators on input 0; the other inputs are operands of its steps."""
    inputs = [value for value in node.inputs if value is not None]
    lower_chain(builder, inputs, node.outputs[0], parse_post_ops(node.attributes))


@kernel("Clip", dtypes=FLOATS | INTEGERS)
def lower_clip(node: Node, builder: PlanBuilder) -> None:
    """Lower bounds that are constant, or computed: a lower bound above the upper one loses."""
    source, *bounds = [*node.inputs, None, None][:3]
    assert source is not None
    is_float = builder.dtype(source) not in INTEGERS
    low, high = (_number_of(value) for value in bounds)
    if is_float and low is not None and high is not None:
        step = PostOp.unary("clip", low, high)
        lower_chain(builder, [source], node.outputs[0], [step])
        return
    inputs: list[Value] = [source]
    steps: list[PostOp] = []
    for name, value in zip(("max", "min"), bounds, strict=True):
        if value is not None:
            steps.append(PostOp.binary(name, len(inputs)))
            inputs.append(value)
    kind = "float_chain" if is_float else "integer_chain"
    lower_chain(builder, inputs, node.outputs[0], steps, kernel=kind)


def _number_of(bound: Value | None) -> float | None:
    """Return a bound that is known when the plan is made."""
    if bound is None or bound.constant is None or bound.constant.size != 1:
        return None
    number = float(bound.constant.reshape(-1)[0])
    return None if number != number else number


def _suits_onednn(builder: PlanBuilder, step: PostOp, operand: Operand, result: Value) -> bool:
    layout = operand.layout
    if step.name not in UNARY or not layout.has_desc or not layout.count:
        return False
    if chain_axes([layout]) is None:
        # Padding of blocks has to stay zero, which the native kernel does not know.
        return not loses_nan(step)
    is_dense = layout.strides is None or layout.size_bytes == layout.count * layout.dtype.item_bytes
    return step.name in _FROM_ONEDNN and is_dense and layout.dtype is result_dtype(builder, result)


def _lower_by_onednn(builder: PlanBuilder, step: PostOp, operand: Operand, result: Value) -> None:
    engine = builder.engine
    desc = operand.layout.desc(engine)
    pd = engine.primitive_desc(
        "eltwise_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        c_int(ELTWISE[UNARY[step.name][0]]),
        desc,
        desc,
        c_float(step.alpha),
        c_float(step.beta),
        Attributes(engine),
    )
    made = builder.result(result, operand.layout, over=operand)
    builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made})
