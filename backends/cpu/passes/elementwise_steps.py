"""What an elementwise node does to one of its inputs, in the words of ``post_ops.py``.

One rule an operator; a rule that gives None says that oneDNN has no such step. Numbers are read
from constants and attributes, so the steps have only those operands that are tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ....runtime.graph import Node, Value
from ....runtime.passes.rewriting.matching import are_float32, rank_of, scalar_of
from ..onednn.post_ops import CPU_DOMAIN, UNARY, PostOp, parse_post_ops
from ..onednn.unary_steps import UNARY_STEPS, clip_bounds

__all__ = ["MAX_POST_OPS", "Steps", "joined", "steps_of"]

MAX_POST_OPS = 8
"""oneDNN takes up to 32; long lists run out of registers and spill."""

_SMALLEST = float(np.finfo(np.float32).smallest_normal)


class Steps(NamedTuple):
    """Post-ops in order; ``operand`` of a binary one counts in ``operands``, from 0."""

    post_ops: tuple[PostOp, ...]
    operands: tuple[Value, ...] = ()

    def then(self, later: Steps) -> Steps:
        """Append steps; a number that is multiplied and then one that is added become one step."""
        shift = len(self.operands)
        post_ops = later.post_ops
        if shift and later.operands:
            post_ops = tuple([post_op.counted_from(shift) for post_op in post_ops])
        return Steps(_joined(self.post_ops, post_ops), self.operands + later.operands)

    def numbered(self, first: int) -> list[str]:
        """Write them as the attribute ``post_ops`` of a node whose input ``first`` is operand 0."""
        return [post_op.text(first) for post_op in self.post_ops]


def joined(post_ops: Sequence[PostOp], inputs: Sequence[Value | None], first: int) -> Steps:
    """Read the post-ops of a fused node, whose operands are its inputs from ``first`` on."""
    counted = [post_op.counted_from(-first) for post_op in post_ops]
    return Steps(tuple(counted), tuple(value for value in inputs[first:] if value is not None))


def steps_of(node: Node, value: Value) -> Steps | None:
    """Return what the node makes of ``value``, one of its inputs; None if oneDNN cannot say it.

    Value and result are float32, as are operands, whose shapes are not looked at. The result has
    the rank of ``value`` unless an operand has more axes.
    """
    if len(node.outputs) != 1 or not are_float32(value, node.outputs[0]):
        return None
    if node.domain == CPU_DOMAIN and node.op_type == "Eltwise":
        return (
            joined(parse_post_ops(node.attributes), node.inputs, 1)
            if _is_first(node, value)
            else None
        )
    if node.domain:
        return None
    if node.op_type in _BINARY:
        return _binary(node, value) if len(node.inputs) == 2 else None
    post_op = _unary(node) if _is_first(node, value) else None
    return None if post_op is None else Steps((post_op,))


def _is_first(node: Node, value: Value) -> bool:
    return [index for index, used in enumerate(node.inputs) if used is value] == [0]


def _binary(node: Node, value: Value) -> Steps | None:
    left, right = node.inputs
    if left is None or right is None:
        return None
    if left is right:
        return _TWICE.get(node.op_type)
    is_left = left is value
    other = right if is_left else left
    number = scalar_of(other) if _keeps_rank(other, value) else None
    if number is not None and not math.isnan(number):
        post_op = _BINARY[node.op_type](number, is_left)
        return None if post_op is None else Steps((post_op,))
    return _with_operand(node.op_type, other, is_left) if are_float32(other) else None


def _keeps_rank(number: Value, value: Value) -> bool:
    return number.constant is not None and number.constant.ndim <= (rank_of(value) or 0)


def _with_operand(op_type: str, other: Value, is_left: bool) -> Steps | None:
    post_ops = (_WITH_OPERAND if is_left else _BEHIND_OPERAND).get(op_type)
    return None if post_ops is None else Steps(post_ops, (other,))


def _joined(earlier: tuple[PostOp, ...], later: tuple[PostOp, ...]) -> tuple[PostOp, ...]:
    """Put steps behind others, where only the last and the first can become one."""
    if not earlier or not later:
        return earlier or later
    last, shift = earlier[-1], later[0]
    is_shift = shift.name == "linear" and shift.alpha == 1.0
    if is_shift and last.name == "linear" and last.beta == 0.0:
        merged = PostOp.unary("linear", last.alpha, shift.beta)
        return (*earlier[:-1], merged, *later[1:])
    return earlier + later


def _clip(node: Node) -> PostOp | None:
    bottom, top = clip_bounds(node)
    if bottom is None or top is None or not bottom <= top:
        return None
    return _clip_between(bottom, top)


def _clip_between(bottom: float, top: float) -> PostOp:
    is_relu = bottom == 0.0 and top == math.inf
    return PostOp.unary("relu") if is_relu else PostOp.unary("clip", bottom, top)


def _prelu(node: Node) -> PostOp | None:
    slope = scalar_of(node.input_at(1))
    # oneDNN multiplies 0, too, and 0 times these is NaN.
    return PostOp.unary("relu", slope) if slope is not None and math.isfinite(slope) else None


def _unary(node: Node) -> PostOp | None:
    if node.op_type in _OF_CONSTANTS:
        return _OF_CONSTANTS[node.op_type](node)
    make = UNARY_STEPS.get(node.op_type)
    step = None if make is None else make(node)
    return None if step is None or step.name not in UNARY else step


_OF_CONSTANTS: Mapping[str, Callable[[Node], PostOp | None]] = {"Clip": _clip, "PRelu": _prelu}
"""Whose other inputs are numbers that have to be known."""


def _add(number: float, is_left: bool) -> PostOp | None:
    return _shifted(1.0, number)


def _sub(number: float, is_left: bool) -> PostOp | None:
    return _shifted(1.0, -number) if is_left else _shifted(-1.0, number)


def _shifted(factor: float, number: float) -> PostOp | None:
    """None for 0, which is no step: adding it makes 0 of -0, and ``linear`` does not."""
    return PostOp.unary("linear", factor, number) if number else None


def _mul(number: float, is_left: bool) -> PostOp | None:
    return PostOp.unary("linear", number)


def _div(number: float, is_left: bool) -> PostOp | None:
    if not is_left:
        return PostOp.unary("pow", number, -1.0)
    with np.errstate(all="ignore"):
        inverse = float(np.float32(1) / np.float32(number))
    is_normal = _SMALLEST <= abs(inverse) < math.inf
    return PostOp.unary("linear", 1.0 / number) if is_normal else None


def _pow(number: float, is_left: bool) -> PostOp | None:
    named = {2.0: PostOp.unary("square"), 0.5: PostOp.unary("sqrt")}
    named[-1.0] = PostOp.unary("pow", 1.0, -1.0)
    return named.get(number) if is_left else None


def _max(number: float, is_left: bool) -> PostOp | None:
    return _clip_between(number, math.inf)


def _min(number: float, is_left: bool) -> PostOp | None:
    return _clip_between(-math.inf, number)


_BINARY: Mapping[str, Callable[[float, bool], PostOp | None]] = {
    "Add": _add,
    "Div": _div,
    "Max": _max,
    "Min": _min,
    "Mul": _mul,
    "Pow": _pow,
    "Sub": _sub,
    "Sum": _add,
}
"""With a number; whether the value is the left operand, and the number the right one."""

_WITH_OPERAND: Mapping[str, tuple[PostOp, ...]] = {
    "Add": (PostOp.binary("add", 0),),
    "Div": (PostOp.binary("div", 0),),
    "Max": (PostOp.binary("max", 0),),
    "Min": (PostOp.binary("min", 0),),
    "Mul": (PostOp.binary("mul", 0),),
    "Sub": (PostOp.binary("sub", 0),),
    "Sum": (PostOp.binary("add", 0),),
}
"""With a tensor as the right operand."""

_BEHIND_OPERAND: Mapping[str, tuple[PostOp, ...]] = {
    **{op_type: post_ops for op_type, post_ops in _WITH_OPERAND.items() if op_type != "Div"},
    "Sub": (PostOp.unary("linear", -1.0), PostOp.binary("add", 0)),
}
"""With a tensor as the left operand."""

_TWICE: Mapping[str, Steps] = {
    "Add": Steps((PostOp.unary("linear", 2.0),)),
    "Mul": Steps((PostOp.unary("square"),)),
    "Sum": Steps((PostOp.unary("linear", 2.0),)),
}
