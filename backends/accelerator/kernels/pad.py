"""Pad: a box of the input in a larger tensor that is filled, or mirrored, or repeated.

Works on elements of any type. A negative pad takes elements away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.graph import Node
from ....runtime.lowering.pad import (
    AxisPad,
    find_unknown_mode,
    is_filling,
    kept_lengths,
    pads_of,
    repeated_indices,
)
from ....runtime.lowering.strides import row_major
from ..launching.strided_copy import strided_copy
from ..launching.table_gather import table_operand, take
from ..operand import Operand
from ..plan_builder import PlanBuilder
from .registry import kernel


@kernel("Pad", dtypes=None, refuses=find_unknown_mode, constant_inputs=(1, 3))
def lower_pad(node: Node, builder: PlanBuilder) -> None:
    """Lower padding; what it fills with may come with the run."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand = builder.operand(source)
    pads = pads_of(node, len(operand.shape))
    axes = zip(operand.shape, pads, strict=True)
    builder.expect_shape(result, [max(0, n + before + after) for n, (before, after) in axes])
    if not any(map(any, pads)):
        builder.define(result, operand)
    elif is_filling(node):
        made = builder.result(result)
        strided_copy(builder, _filling(node, builder, made), made, made.shape, [0] * len(pads))
        _copy_kept(operand, made, pads, builder)
    elif 0 in builder.shape(result):
        builder.result(result)
    else:
        made = _repeat_around(node, operand, pads, builder)
        builder.define(result, made)


def _filling(node: Node, builder: PlanBuilder, made: Operand) -> Operand:
    """Return the place of the one element that constant padding fills with."""
    value = node.input_at(2)
    if value is None or (value.constant is not None and not value.constant.size):
        return table_operand(builder, np.zeros(1, made.dtype.numpy))
    return builder.operand(value)


def _copy_kept(
    source: Operand, target: Operand, pads: Sequence[AxisPad], builder: PlanBuilder
) -> None:
    """Copy what is left of the input to its place in the result."""
    kept = kept_lengths(source.shape, pads)
    come, go = row_major(source.shape), row_major(target.shape)
    strided_copy(
        builder,
        source,
        target,
        kept,
        come,
        sum(max(0, -before) * stride for (before, _), stride in zip(pads, come, strict=True)),
        go,
        sum(max(0, before) * stride for (before, _), stride in zip(pads, go, strict=True)),
    )


def _repeat_around(
    node: Node, operand: Operand, pads: Sequence[AxisPad], builder: PlanBuilder
) -> Operand:
    """Take elements by index, axis by axis."""
    for axis, pad in enumerate(pads):
        if pad == (0, 0):
            continue
        shape = list(operand.shape)
        table = repeated_indices(node, shape[axis], pad)
        shape[axis] = len(table)
        made = builder.temporary(shape, operand.dtype)
        take(builder, operand, made, axis, table_operand(builder, table))
        operand = made
    return operand
