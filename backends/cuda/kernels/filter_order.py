"""Filters in the orders in which maps with channels last want them; once, if they are constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.graph import DType, Value
from ....runtime.lowering.strides import row_major
from ...accelerator.launching.strided_copy import strided_copy
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder

__all__ = ["filters_by_place", "filters_with_channels_last", "transposed_filters_by_place"]

Array = np.ndarray[Any, Any]


def filters_with_channels_last(
    builder: PlanBuilder, weights: Value, channels: int, dtype: DType
) -> Operand:
    """Lay filters (filter, channel, *window) out as cuDNN reads them: filter, window, channel.

    Channels that they lack are zeros; filters that come with the run lack none.
    """
    rank = len(builder.shape(weights))
    return _ordered(builder, weights, channels, dtype, (0, *range(2, rank), 1))


def filters_by_place(builder: PlanBuilder, weights: Value, channels: int, dtype: DType) -> Operand:
    """Lay filters out so that neighbours are filters: window, channel, filter."""
    rank = len(builder.shape(weights))
    return _ordered(builder, weights, channels, dtype, (*range(2, rank), 1, 0))


def transposed_filters_by_place(
    builder: PlanBuilder, weights: Value, groups: int, dtype: DType
) -> Operand:
    """Lay filters (channel, filter of a group, *window) out as window, channel of a group, filter.

    Channels of all groups lie behind each other, and so do the filters of the result.
    """
    channels, filters, *window = builder.shape(weights)
    split = (groups, channels // groups, filters, *window)
    order = (*range(3, len(split)), 1, 0, 2)
    shape = (*window, channels // groups, groups * filters)

    def reordered(array: Array) -> Array:
        return array.reshape(split).transpose(order).reshape(shape)

    operation = f"transposed filters of {groups} groups by their place"
    if weights.constant is not None:
        return _derived(builder, weights.constant, operation, dtype, reordered, shape)
    return builder.view(_copied(builder, weights, split, order), shape)


def _ordered(
    builder: PlanBuilder, weights: Value, channels: int, dtype: DType, order: tuple[int, ...]
) -> Operand:
    given = builder.shape(weights)
    full = (given[0], channels, *given[2:])
    if weights.constant is None:
        return _copied(builder, weights, given, order)

    def reordered(array: Array) -> Array:
        lacking = [(0, 0)] * array.ndim
        lacking[1] = (0, channels - given[1])
        return np.pad(array, lacking).transpose(order)

    operation = f"filters of {channels} channels in the order {list(order)}"
    shape = tuple(full[axis] for axis in order)
    return _derived(builder, weights.constant, operation, dtype, reordered, shape)


def _derived(
    builder: PlanBuilder,
    array: Array,
    operation: str,
    dtype: DType,
    reordered: Callable[[Array], Array],
    shape: tuple[int, ...],
) -> Operand:
    return builder.derived(operation, [array], dtype, lambda: reordered(array), shape)


def _copied(
    builder: PlanBuilder, weights: Value, seen: tuple[int, ...], order: tuple[int, ...]
) -> Operand:
    """Reorder what comes with the run, seen in a shape, on the device."""
    operand = builder.operand(weights)
    made = builder.temporary([seen[axis] for axis in order], operand.dtype)
    strides = row_major(seen)
    strided_copy(builder, operand, made, made.shape, [strides[axis] for axis in order])
    return made
