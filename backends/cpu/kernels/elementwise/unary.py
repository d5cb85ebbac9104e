"""Elementwise operators of one float32 tensor, and fused groups of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from ctypes import c_float, c_int

from .....runtime.graph import Node, Value
from ...onednn.bindings import ARG, ELTWISE, FORWARD_INFERENCE, Attributes
from ...onednn.post_ops import CPU_DOMAIN, UNARY, PostOp, loses_nan, parse_post_ops, slow_steps
from ...onednn.unary_steps import FLOAT32_MOST, UNARY_STEPS, clip_bounds
from ...plans.elementwise_parameters import elementwise_axes
from ...plans.operand_layout import Operand
from ...plans.plan_builder import PlanBuilder
from ..registry import FLOATS, INTEGERS, kernel
from .fused_elementwise import lower_elementwise, result_dtype

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


_OF_INTEGERS: Mapping[str, str] = {"Abs": "abs", "Neg": "neg", "Relu": "relu", "Sign": "sign"}


@kernel(*(op_type for op_type in UNARY_STEPS if op_type not in _OF_INTEGERS))
@kernel(*_OF_INTEGERS, dtypes=FLOATS | INTEGERS)
def lower_unary(node: Node, builder: PlanBuilder) -> None:
    """Lower one unary operator, in the layout that its input has; in place where it may."""
    (source,) = node.inputs
    (result,) = node.outputs
    assert source is not None
    if builder.dtype(source) in INTEGERS:
        step = PostOp(_OF_INTEGERS[node.op_type])
        lower_elementwise(builder, [source], result, [step], kernel="integer_elementwise")
        return
    step = UNARY_STEPS[node.op_type](node)
    operand = builder.operand(source)
    if _suits_onednn(builder, step, operand, result):
        _lower_by_onednn(builder, step, operand, result)
    else:
        lower_elementwise(builder, [source], result, [step])


@kernel("Eltwise", domain=CPU_DOMAIN)
def lower_fused(node: Node, builder: PlanBuilder) -> None:
    """Lower a fused group of operators on input 0; the other inputs are operands of its steps."""
    inputs = [value for value in node.inputs if value is not None]
    lower_elementwise(builder, inputs, node.outputs[0], parse_post_ops(node.attributes))


@kernel("Clip", dtypes=FLOATS | INTEGERS)
def lower_clip(node: Node, builder: PlanBuilder) -> None:
    """Lower bounds that are constant, or computed: a lower bound above the upper one loses."""
    source, *bounds = [*node.inputs, None, None][:3]
    assert source is not None
    is_float = builder.dtype(source) not in INTEGERS
    low, high = clip_bounds(node)
    if is_float and low is not None and high is not None:
        step = PostOp.unary("clip", low, high)
        lower_elementwise(builder, [source], node.outputs[0], [step])
        return
    inputs: list[Value] = [source]
    steps: list[PostOp] = []
    for name, value in zip(("max", "min"), bounds, strict=True):
        if value is not None:
            steps.append(PostOp.binary(name, len(inputs)))
            inputs.append(value)
        elif is_float and name == "max":
            steps.append(PostOp.unary("clip", -FLOAT32_MOST, math.inf))
        elif is_float:
            steps.append(PostOp.unary("clip", -math.inf, FLOAT32_MOST))
    kind = "float_elementwise" if is_float else "integer_elementwise"
    lower_elementwise(builder, inputs, node.outputs[0], steps, kernel=kind)


def _suits_onednn(builder: PlanBuilder, step: PostOp, operand: Operand, result: Value) -> bool:
    layout = operand.layout
    if step.name not in UNARY or not layout.has_desc or not layout.count:
        return False
    if elementwise_axes([layout]) is None:
        # Padding of blocks has to stay zero, which the native kernel does not know.
        return not loses_nan(step)
    is_dense = layout.strides is None or layout.size_bytes == layout.count * layout.dtype.item_bytes
    is_quick = step.name in _FROM_ONEDNN - slow_steps(builder.engine.instruction_set)
    return is_quick and is_dense and layout.dtype is result_dtype(builder, result)


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
