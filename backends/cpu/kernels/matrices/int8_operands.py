"""What the native kernels for int8 are given beside data and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from ...native.step_runner import double_bits
from ...onednn.post_ops import parse_post_ops
from ...plans.elementwise_parameters import FLOAT_STEPS
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import ordered_strides

__all__ = ["channels_last", "constant_of", "given", "laid_last", "steps_of_node", "two"]

Array = np.ndarray[Any, Any]


def steps_of_node(
    node: Node, builder: PlanBuilder, layout: Layout, laid: Callable[[Value], Operand]
) -> tuple[list[Operand], list[int]]:
    """Return the operands of a node's post-ops, which lie as its result does, and four words each.

    ``laid`` gives an operand as the result lies, whose ``layout`` that is.
    """
    others: list[Operand] = []
    words: list[int] = []
    for step in parse_post_ops(node.attributes):
        if step.operand is not None:
            value = given(node, step.operand)
            if builder.shape(value) != layout.shape:
                raise builder.contradiction(f"{value.name!r} is not as {list(layout.shape)}")
            others.append(laid(value))
        number = FLOAT_STEPS.index("add" if step.name == "sum" else step.name)
        other = 0 if step.operand is None else len(others)
        words += [number, other, double_bits(step.alpha), double_bits(step.beta)]
    return others, words


def channels_last(shape: Sequence[int], dtype: DType) -> Layout:
    """Describe (N, C, ...) with its channels innermost in memory."""
    order = (0, *range(2, len(shape)), 1)
    return Layout.plain(shape, dtype, ordered_strides(shape, order))


def laid_last(value: Value, builder: PlanBuilder) -> Operand:
    """Return a value with its channels innermost."""
    wanted = channels_last(builder.shape(value), builder.dtype(value))
    return builder.reordered(value, wanted.desc(builder.engine))


def two(lengths: Sequence[int], front: int = 1) -> tuple[int, int]:
    """Return the numbers of two axes, of which the first may not be there."""
    high, wide = (front, *lengths) if len(lengths) == 1 else lengths
    return high, wide


def constant_of(value: Value) -> Array:
    """Return the content of a constant."""
    assert value.constant is not None
    return value.constant


def given(node: Node, index: int) -> Value:
    """Return an input that is there."""
    value = node.inputs[index]
    assert value is not None
    return value
