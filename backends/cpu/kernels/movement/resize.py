"""Resize: elements are repeated or interpolated, one axis after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.resize import (
    find_unknown_setting,
    indices_of,
    is_repeating,
    resamplings,
    weighted_indices_of,
)
from .....runtime.operators.images.resampling import WeightedIndices
from .....runtime.passes.rewriting.matching import dtype_of
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import memory_order, ordered_strides
from ..numpy_operators import lower_by_numpy, refuses_operator
from ..registry import kernel
from .views import permuted

Array = np.ndarray[Any, Any]


def _refuses(node: Node) -> str | None:
    unknown = find_unknown_setting(node)
    return refuses_operator(node) if unknown is None and _is_for_numpy(node) else unknown


def _is_for_numpy(node: Node) -> bool:
    """True for integers that are joined: how they are cut and rounded is shown by each of them."""
    return not is_repeating(node) and dtype_of(node.inputs[0]) is not DType.FLOAT32


@kernel("Resize", dtypes=None, refuses=_refuses, constant_inputs=(1, 2, 3))
def lower_resize(node: Node, builder: PlanBuilder) -> None:
    """Lower a change of resolution, in the order of axes in which the input lies."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    if _is_for_numpy(node):
        lower_by_numpy(node, builder)
        return
    shape, wanted = builder.shape(source), builder.shape(result)
    if 0 in shape or 0 in wanted:
        builder.result(result, Layout.plain(wanted, builder.held_dtype(result)))
        return
    axes = resamplings(node, shape, wanted)
    repeats = is_repeating(node)
    operand = _dense(source, builder, None if repeats else DType.FLOAT32)
    assert operand.layout.strides is not None
    order = memory_order(operand.layout.strides)
    moved = permuted(operand, order, builder)
    if repeats:
        tables = {axis: indices_of(node, item) for axis, item in axes.items()}
        steps = _pairs(
            [order.index(axis) for axis, table in tables.items() if not _is_own(table, shape[axis])]
        )
    else:
        taps = {axis: weighted_indices_of(node, item) for axis, item in axes.items()}
        steps = [
            [order.index(axis)] for axis, item in taps.items() if not item.is_identity(shape[axis])
        ]
        # Elements cost more than rows: the innermost axis goes first where the others get longer.
        grows = [wanted[axis] > shape[axis] for axis in order[:-1]]
        steps.sort(key=lambda step: (step[0] == len(order) - 1) != any(grows))
    place = _Place(result, [wanted[axis] for axis in order], order, builder)
    for number, step in enumerate(steps):
        lengths = list(moved.shape)
        for axis in step:
            lengths[axis] = wanted[order[axis]]
        made = place.of(lengths, moved.dtype, is_last=number == len(steps) - 1)
        if repeats:
            _repeat(moved, made, step, [tables[order[axis]] for axis in step], builder)
        else:
            _interpolate(moved, made, step[0], taps[order[step[0]]], builder)
        moved = made
    if not steps:
        builder.define(result, operand)


class _Place:
    """Where the steps of one node write: the last one into the result."""

    def __init__(
        self, result: Value, lengths: Sequence[int], order: Sequence[int], builder: PlanBuilder
    ) -> None:
        self._result, self._lengths, self._builder = result, lengths, builder
        self._back = [list(order).index(axis) for axis in range(len(order))]
        self._order = order

    def of(self, lengths: Sequence[int], dtype: DType, *, is_last: bool) -> Operand:
        """Return row-major memory of these lengths, which are in memory order."""
        layout = Layout.plain(lengths, dtype)
        if not is_last:
            return self._builder.temporary(layout)
        shape = [lengths[axis] for axis in self._back]
        ordered = Layout.plain(shape, dtype, ordered_strides(shape, self._order))
        return self._builder.result(self._result, ordered).viewed(layout)


def _is_own(table: Array, length: int) -> bool:
    return len(table) == length and bool((table == np.arange(length)).all())


def _pairs(axes: Sequence[int]) -> list[list[int]]:
    """Join neighbouring axes two by two, from the last one on: one step does both."""
    pairs: list[list[int]] = []
    for axis in sorted(axes, reverse=True):
        if pairs and len(pairs[-1]) == 1 and pairs[-1][0] == axis + 1:
            pairs[-1].insert(0, axis)
        else:
            pairs.append([axis])
    return pairs


def _repeat(
    source: Operand,
    target: Operand,
    axes: Sequence[int],
    tables: Sequence[Array],
    builder: PlanBuilder,
) -> None:
    rows, columns = tables if len(tables) == 2 else (np.zeros(1, np.int32), tables[0])
    shape = source.shape
    row_length = shape[axes[0]] if len(axes) == 2 else 1
    builder.native(
        "sample_grid",
        (source, builder.constant_operand(rows), builder.constant_operand(columns), target),
        (
            math.prod(shape[: axes[0]]),
            row_length,
            shape[axes[-1]],
            len(rows),
            len(columns),
            math.prod(shape[axes[-1] + 1 :]) * source.dtype.item_bytes,
        ),
    )


def _interpolate(
    source: Operand, target: Operand, axis: int, taps: WeightedIndices, builder: PlanBuilder
) -> None:
    shape = source.shape
    tables = (taps.indices, taps.weights, taps.offsets)
    builder.native(
        "resample",
        (source, *map(builder.constant_operand, tables), target),
        (
            math.prod(shape[:axis]),
            shape[axis],
            len(taps.indices),
            math.prod(shape[axis + 1 :]),
            taps.indices.shape[1],
        ),
    )


def _dense(value: Value, builder: PlanBuilder, dtype: DType | None) -> Operand:
    """Return a value without gaps, with its axes in any order; in an element type, if given."""
    operand = builder.operand(value)
    layout = operand.layout
    if layout.strides is not None and dtype in (None, layout.dtype):
        order = memory_order(layout.strides)
        if permuted(operand, order, builder).layout.is_row_major:
            return operand
    return builder.plain(value, dtype or operand.dtype)
