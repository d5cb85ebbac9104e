"""Pad: a box of the input in a larger tensor that is filled, or mirrored, or repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.pad import (
    AxisPad,
    find_unknown_mode,
    is_filling,
    kept_lengths,
    pads_of,
    repeated_indices,
)
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import memory_order, ordered_strides
from ..registry import kernel
from .shapes import word_of
from .views import permuted, sliced

Array = np.ndarray[Any, Any]


@kernel("Pad", dtypes=None, refuses=find_unknown_mode, constant_inputs=(1, 2, 3))
def lower_pad(node: Node, builder: PlanBuilder) -> None:
    """Lower padding; a negative pad takes elements away."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    shape, wanted = builder.shape(source), builder.shape(result)
    pads = pads_of(node, len(shape))
    wide = [length + before + after for length, (before, after) in zip(shape, pads, strict=True)]
    builder.expect_shape(result, [max(0, length) for length in wide])
    if 0 in shape and not is_filling(node) and 0 not in wanted:
        raise builder.contradiction(f"there is nothing in {list(shape)} to repeat")
    if 0 in wanted:
        builder.result(result, Layout.plain(wanted, builder.held_dtype(result)))
    elif is_filling(node):
        _fill_around(node, source, result, pads, builder)
    else:
        _repeat_around(node, source, result, pads, builder)


def _fill_around(
    node: Node, source: Value, result: Value, pads: Sequence[AxisPad], builder: PlanBuilder
) -> None:
    """Fill what no element of the input reaches, then copy the input to its place."""
    shape, wanted = builder.shape(source), builder.shape(result)
    kept = kept_lengths(shape, pads)
    begin = [max(0, -before) for before, _ in pads]
    if kept == list(wanted):
        builder.define(result, sliced(source, builder, begin, kept))
        return
    operand = sliced(source, builder, begin, kept)
    dtype, order = operand.dtype, _order(operand, result)
    made = builder.result(result, Layout.plain(wanted, dtype, ordered_strides(wanted, order)))
    whole, lengths = permuted(made, order, builder), [kept[axis] for axis in order]
    start = [max(0, pads[axis][0]) for axis in order]
    word = word_of(_value(node, builder.dtype(source)).astype(dtype.numpy))
    for first, sizes in _borders(whole.shape, start, lengths):
        border = _box(whole, first, sizes)
        if border.layout.is_row_major:
            parameters = (dtype.item_bytes, border.layout.count, word)
            builder.native("fill", (border,), parameters)
        else:
            value = np.asarray(_value(node, builder.dtype(source))).astype(dtype.numpy)
            one = builder.constant_operand(value.reshape(()))
            repeated = Layout.plain(sizes, dtype, [0] * len(sizes))
            builder.copy(one.viewed(repeated), border)
    if 0 not in kept:
        builder.move(permuted(operand, order, builder), _box(whole, start, lengths))


def _order(operand: Operand, result: Value) -> list[int]:
    """List the axes in the order of a result in memory: that of the input, to copy its rows."""
    if operand.layout.strides is None or result.is_graph_output:
        return list(range(len(operand.shape)))
    return memory_order(operand.layout.strides)


def _borders(
    shape: Sequence[int], begin: Sequence[int], kept: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """Divide all that lies outside of a box into boxes: (first element, lengths)."""
    if 0 in kept:
        return [([0] * len(shape), list(shape))]
    found = []
    first, lengths = [0] * len(shape), list(shape)
    for axis, (start, length) in enumerate(zip(begin, kept, strict=True)):
        stop = start + length
        for low, high in ((0, start), (stop, shape[axis])):
            if low < high:
                box_first, box_lengths = list(first), list(lengths)
                box_first[axis], box_lengths[axis] = low, high - low
                found.append((box_first, box_lengths))
        first[axis], lengths[axis] = start, length
    return found


def _box(operand: Operand, first: Sequence[int], lengths: Sequence[int]) -> Operand:
    strides = operand.layout.strides
    assert strides is not None
    offset = sum(place * stride for place, stride in zip(first, strides, strict=True))
    return operand.viewed(Layout.plain(lengths, operand.dtype, strides), offset)


def _repeat_around(
    node: Node, source: Value, result: Value, pads: Sequence[AxisPad], builder: PlanBuilder
) -> None:
    """Take elements by index, axis by axis."""
    operand = builder.plain(source, builder.operand(source).dtype)
    changed = [axis for axis, pad in enumerate(pads) if pad != (0, 0)]
    for number, axis in enumerate(changed):
        shape = operand.shape
        indices = repeated_indices(node, shape[axis], pads[axis])
        lengths = [*shape[:axis], len(indices), *shape[axis + 1 :]]
        layout = Layout.plain(lengths, operand.dtype)
        is_last = number == len(changed) - 1
        made = builder.result(result, layout) if is_last else builder.temporary(layout)
        part = math.prod(shape[axis + 1 :]) * operand.dtype.item_bytes
        rows = builder.constant_operand(np.zeros(1, np.int32))
        builder.native(
            "sample_grid",
            (operand, rows, builder.constant_operand(indices), made),
            (math.prod(shape[:axis]), 1, shape[axis], 1, len(indices), part),
        )
        operand = made
    if not changed:
        builder.define(result, operand)


def _value(node: Node, dtype: DType) -> Array:
    """Return what constant padding fills with; one element."""
    value = node.input_at(2)
    if value is None or value.constant is None or not value.constant.size:
        return np.zeros(1, dtype.numpy)
    return value.constant.reshape(-1)[:1]
