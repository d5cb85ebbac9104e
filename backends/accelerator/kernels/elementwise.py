"""Elementwise operators, alone and in fused groups: one generated kernel for each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....runtime.graph import DType, Node, TensorType, Value
from ..elementwise.c_types import C_TYPES
from ..elementwise.elementwise_operators import ELEMENTWISE_OPERATORS, ONNX_OPERATORS
from ..elementwise.fused_launch import fused_launch
from ..elementwise.fused_step import (
    ACCELERATOR_DOMAIN,
    FUSED_ELEMENTWISE,
    FusedStep,
    parse_steps,
    step_of,
)
from ..plan_builder import PlanBuilder
from .registry import kernel

_OF_ANY_TYPES = frozenset({"Pow", "Where"})
"""Operators whose other operands may be of other types than the first."""


def find_refusal(node: Node) -> str | None:
    """Return why an elementwise node cannot be a step, or None; needs no shapes."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    for value in values:
        kind = value.type
        if isinstance(kind, TensorType) and kind.dtype not in _allowed(node, value):
            return f"{value.name!r} is {kind}, which its kernel has no type for"
    return None


def _allowed(node: Node, value: Value) -> Collection[DType]:
    found = ELEMENTWISE_OPERATORS[node.op_type]
    if value.producer is node:
        return found.dtypes if found.result is None else found.result
    is_first = value is node.inputs[0]
    return C_TYPES if node.op_type in _OF_ANY_TYPES and not is_first else found.dtypes


def lower_elementwise(node: Node, builder: PlanBuilder) -> None:
    """Lower one operator as a group of one step."""
    names = {value: f"i{index}" for index, value in enumerate(node.inputs) if value is not None}
    _lower_steps(node, builder, (step_of(node, names.__getitem__),))


for _op in sorted(ONNX_OPERATORS):
    kernel(_op, dtypes=ELEMENTWISE_OPERATORS[_op].dtypes, refuses=find_refusal)(lower_elementwise)


@kernel(FUSED_ELEMENTWISE, domain=ACCELERATOR_DOMAIN, dtypes=None)
def lower_fused(node: Node, builder: PlanBuilder) -> None:
    """Lower a fused group."""
    _lower_steps(node, builder, parse_steps(node))


@kernel("PRelu", dtypes=ELEMENTWISE_OPERATORS["PRelu"].dtypes, refuses=find_refusal)
def lower_prelu(node: Node, builder: PlanBuilder) -> None:
    """Lower PRelu, whose slopes may also be one for each channel, as before opset 7."""
    source, slopes = node.inputs
    assert source is not None
    assert slopes is not None
    shape, given = builder.shape(source), builder.shape(slopes)
    if len(given) != 1 or given[0] in (1, shape[-1]):
        lower_elementwise(node, builder)
        return
    wide = builder.view(builder.operand(slopes), (*given, *[1] * (len(shape) - 2)))
    operands = {"i0": builder.operand(source), "i1": wide}
    step = step_of(node, {source: "i0", slopes: "i1"}.__getitem__)
    fused_launch(builder, (step,), operands, builder.result(node.outputs[0]))


def _lower_steps(node: Node, builder: PlanBuilder, steps: Sequence[FusedStep]) -> None:
    operands = {
        f"i{index}": builder.scalar_or_operand(value)
        for index, value in enumerate(node.inputs)
        if value is not None
    }
    fused_launch(builder, steps, operands, builder.result(node.outputs[0]))
