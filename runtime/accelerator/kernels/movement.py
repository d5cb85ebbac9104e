"""Operators that put elements in another order, repeat them, or join and cut tensors.

All of them are strided copies, so they take elements of any type.
"""

from __future__ import annotations

from ...graph import Node, Value
from ...node_parameters import integers_of
from ...slice_node import slice_box
from ...space_depth_node import block_transpose
from ...strides import row_major
from ..operand import Operand
from ..plan_builder import PlanBuilder
from ..strided_copy import strided_copy
from ..walk import broadcast_strides
from .registry import kernel

__all__ = ["joined_parts"]


@kernel("Transpose", dtypes=None)
def lower_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a permutation of axes; a view where only axes of length 1 move."""
    (source,) = node.inputs
    assert source is not None
    (result,) = node.outputs
    operand = builder.operand(source)
    rank = len(operand.shape)
    permutation = [int(axis) for axis in node.attributes.get("perm") or range(rank)[::-1]]
    long_axes = [axis for axis in permutation if operand.shape[axis] != 1]
    if long_axes == sorted(long_axes):
        builder.define(result, operand.viewed(builder.shape(result)))
        return
    made = builder.result(result)
    strides = row_major(operand.shape)
    strided_copy(builder, operand, made, made.shape, [strides[axis] for axis in permutation])


@kernel("Concat", dtypes=None)
def lower_concat(node: Node, builder: PlanBuilder) -> None:
    """Lower a concatenation: a copy for each part that has elements; a view if only one has."""
    (result,) = node.outputs
    axis, parts = joined_parts(node, builder)
    if len(parts) == 1:
        builder.define(result, builder.operand(parts[0]))
        return
    made = builder.result(result)
    strides, start = row_major(made.shape), 0
    for part in map(builder.operand, parts):
        own = row_major(part.shape)
        place = start * strides[axis]
        strided_copy(
            builder, part, made, part.shape, own, target_strides=strides, target_offset=place
        )
        start += part.shape[axis]


def joined_parts(node: Node, builder: PlanBuilder) -> tuple[int, list[Value]]:
    """Give the axis of a concatenation, counted from the first, and the parts with elements."""
    axis = int(node.attributes["axis"]) % len(builder.shape(node.outputs[0]))
    given = (value for value in node.inputs if value is not None)
    return axis, [value for value in given if 0 not in builder.shape(value)]


@kernel("Split", dtypes=None, constant_inputs=(1,))
def lower_split(node: Node, builder: PlanBuilder) -> None:
    """Lower a split: each part is a box of the input."""
    source = node.inputs[0]
    assert source is not None
    rank = len(builder.shape(source))
    axis = int(node.attributes.get("axis", 0)) % max(1, rank)
    start = 0
    for result in node.outputs:
        begin = [0] * rank
        begin[axis] = start
        start += builder.shape(result)[axis]
        _take_box(source, result, builder, begin, [1] * rank)


@kernel("Slice", dtypes=None, constant_inputs=(1, 2, 3, 4))
def lower_slice(node: Node, builder: PlanBuilder) -> None:
    """Lower a slice with steps in either direction."""
    source = node.inputs[0]
    assert source is not None
    begin, step = slice_box(node, builder.shape(source))
    _take_box(source, node.outputs[0], builder, begin, step)


def _take_box(
    source: Value, result: Value, builder: PlanBuilder, begin: list[int], steps: list[int]
) -> None:
    """Copy every ``steps``-th element from ``begin`` on; a view where that is all of them."""
    operand = builder.operand(source)
    if operand.shape == builder.shape(result) and all(step > 0 for step in steps):
        builder.define(result, operand)
        return
    made = builder.result(result)
    strides = row_major(operand.shape)
    offset = sum(first * stride for first, stride in zip(begin, strides, strict=True))
    # Where the result has at most one element along an axis, a step may exceed what an int holds.
    axes = zip(strides, steps, made.shape, strict=True)
    taken = [stride * step if length > 1 else 0 for stride, step, length in axes]
    strided_copy(builder, operand, made, made.shape, taken, offset)


@kernel("Expand", dtypes=None, constant_inputs=(1,))
def lower_expand(node: Node, builder: PlanBuilder) -> None:
    """Lower a broadcast that has to be there in memory."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand, shape = builder.operand(source), builder.shape(result)
    if operand.shape == shape:
        builder.define(result, operand)
        return
    made = builder.result(result)
    strided_copy(builder, operand, made, shape, broadcast_strides(operand.shape, shape))


@kernel("Tile", dtypes=None, constant_inputs=(1,))
def lower_tile(node: Node, builder: PlanBuilder) -> None:
    """Lower a repetition: each axis becomes a repeating and a moving one."""
    source = node.inputs[0]
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    repeats = integers_of(node, 1) or []
    lengths: list[int] = []
    strides: list[int] = []
    axes = zip(operand.shape, repeats, row_major(operand.shape), strict=True)
    for length, repeat, stride in axes:
        lengths += [repeat, length]
        strides += [0, stride]
    strided_copy(builder, operand, made, lengths, strides)


@kernel("DepthToSpace", "SpaceToDepth", dtypes=None)
def lower_depth_to_space(node: Node, builder: PlanBuilder) -> None:
    """Lower the exchange of channels and space: one copy over six axes."""
    source = node.inputs[0]
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    lengths, order = block_transpose(node, operand.shape)
    _copy_permuted(operand.viewed(lengths), made, order, builder)


def _copy_permuted(
    source: Operand, target: Operand, order: tuple[int, ...], builder: PlanBuilder
) -> None:
    strides = row_major(source.shape)
    shape = [source.shape[axis] for axis in order]
    strided_copy(builder, source, target, shape, [strides[axis] for axis in order])
