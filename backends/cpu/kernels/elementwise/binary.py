"""Arithmetic of two and more tensors, which broadcast to each other."""

from __future__ import annotations

from collections.abc import Mapping

from .....runtime.graph import DType, Node, TensorType, Value
from ...onednn.post_ops import PostOp
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..registry import FLOATS, INTEGERS, kernel
from .fused_elementwise import lower_elementwise

__all__ = ["lower_binary"]

_FOLDED: Mapping[str, str] = {
    "Add": "add",
    "Div": "div",
    "Max": "max",
    "Mean": "add",
    "Min": "min",
    "Mul": "mul",
    "Sub": "sub",
    "Sum": "add",
}
_BITWISE: Mapping[str, str] = {"BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor"}
_POWERS = FLOATS | INTEGERS | {DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64}


@kernel(*_FOLDED, dtypes=FLOATS | INTEGERS)
def lower_binary(node: Node, builder: PlanBuilder) -> None:
    """Lower a fold over all inputs, from the left; integers wrap, and divide towards zero."""
    inputs = [value for value in node.inputs if value is not None]
    name = _FOLDED[node.op_type]
    steps = [PostOp.binary(name, index) for index in range(1, len(inputs))]
    if node.op_type == "Mean":
        steps.append(PostOp.unary("linear", 1.0 / len(inputs)))
    lower_elementwise(
        builder, inputs, node.outputs[0], steps, kernel=_kernel_of(builder, inputs[0])
    )


@kernel("PRelu", dtypes=FLOATS | INTEGERS)
def lower_prelu(node: Node, builder: PlanBuilder) -> None:
    """Lower x below zero times a slope, which broadcasts; else its one axis is the channels."""
    source, slope = node.inputs
    assert source is not None
    assert slope is not None
    shape, given = builder.shape(source), builder.shape(slope)
    inputs, others = [source, slope], []
    if len(given) == 1 and len(shape) > 1 and given[0] not in (1, shape[-1]):
        operand = builder.plain(slope)
        layout = Layout.plain((*given, *[1] * (len(shape) - 2)), operand.dtype)
        inputs, others = [source], [operand.viewed(layout)]
    steps, kernel_name = [PostOp.binary("prelu", 1)], _kernel_of(builder, source)
    lower_elementwise(builder, inputs, node.outputs[0], steps, kernel=kernel_name, others=others)


def _refuses_exponent(node: Node) -> str | None:
    base, exponent = (_dtype_of(value) for value in node.inputs)
    if exponent is not None and exponent not in _POWERS:
        return f"CPU has no Pow with exponents of {exponent.label}"
    if base in INTEGERS and exponent is not None and exponent not in INTEGERS:
        return f"CPU raises integers to integers only, not to {exponent.label}"
    return None


@kernel("Pow", dtypes=FLOATS | INTEGERS, refuses=_refuses_exponent)
def lower_pow(node: Node, builder: PlanBuilder) -> None:
    """Lower a power in the type of the base; what integers leave of a fraction is cut off."""
    base, exponent = node.inputs
    assert base is not None
    assert exponent is not None
    kernel_name = _kernel_of(builder, base)
    number = builder.constant(exponent)
    if kernel_name == "float_elementwise" and number is not None and number.shape == ():
        step = PostOp.unary("pow", 1.0, float(number))
        lower_elementwise(builder, [base], node.outputs[0], [step])
        return
    step = PostOp("power", operand=1)
    lower_elementwise(builder, [base, exponent], node.outputs[0], [step], kernel=kernel_name)


@kernel("Mod", dtypes=FLOATS | INTEGERS)
def lower_mod(node: Node, builder: PlanBuilder) -> None:
    """Lower a remainder: with the sign of the divisor, or of the dividend if ``fmod`` is 1."""
    left, right = node.inputs
    assert left is not None
    assert right is not None
    step = PostOp("fmod" if node.attributes.get("fmod", 0) else "mod", operand=1)
    kernel_name = _kernel_of(builder, left)
    lower_elementwise(builder, [left, right], node.outputs[0], [step], kernel=kernel_name)


@kernel("BitShift", *_BITWISE, dtypes=INTEGERS)
def lower_bitwise(node: Node, builder: PlanBuilder) -> None:
    """Lower an operator on the bits of two integers."""
    left, right = node.inputs
    assert left is not None
    assert right is not None
    if node.op_type == "BitShift":
        is_left = node.text("direction") == "LEFT"
        step = PostOp("shift_left" if is_left else "shift_right", operand=1)
    else:
        step = PostOp(_BITWISE[node.op_type], operand=1)
    lower_elementwise(builder, [left, right], node.outputs[0], [step], kernel="integer_elementwise")


@kernel("BitwiseNot", dtypes=INTEGERS)
def lower_bitwise_not(node: Node, builder: PlanBuilder) -> None:
    """Lower the inversion of all bits."""
    (source,) = node.inputs
    assert source is not None
    steps = [PostOp("invert")]
    lower_elementwise(builder, [source], node.outputs[0], steps, kernel="integer_elementwise")


def _kernel_of(builder: PlanBuilder, value: Value) -> str:
    return "integer_elementwise" if builder.dtype(value) in INTEGERS else "float_elementwise"


def _dtype_of(value: Value | None) -> DType | None:
    kind = None if value is None else value.type
    return kind.dtype if isinstance(kind, TensorType) else None
