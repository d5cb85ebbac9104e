"""Operators that put elements in another order, repeat them, or join and cut tensors.

All of them are strided copies, so they take elements of any type.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.graph import Node, Value
from ....runtime.lowering.slice import slice_box
from ....runtime.lowering.space_depth import block_transpose
from ....runtime.lowering.strides import row_major
from ..elementwise.operand_walk import broadcast_strides
from ..launching.strided_copy import strided_copy
from ..operand import Operand
from ..plan_builder import PlanBuilder
from .growing_join import join_behind
from .registry import kernel

__all__ = ["check_parts", "joined_parts"]


@kernel("Transpose", dtypes=None)
def lower_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a permutation of axes; a view where only axes of length 1 move."""
    (source,) = node.inputs
    assert source is not None
    (result,) = node.outputs
    shape = builder.shape(source)
    rank = len(shape)
    permutation = [int(axis) for axis in node.attributes.get("perm") or range(rank)[::-1]]
    if sorted(permutation) != list(range(rank)):
        raise builder.contradiction(f"{permutation} is no order of {rank} axes")
    builder.expect_shape(result, [shape[axis] for axis in permutation])
    lies = builder.strided(source)
    if lies is not None:
        builder.define_strided(result, lies.permuted(permutation))
        return
    operand = builder.operand(source)
    long_axes = [axis for axis in permutation if operand.shape[axis] != 1]
    if long_axes == sorted(long_axes):
        builder.define(result, builder.view(operand, builder.shape(result)))
        return
    made = builder.result(result)
    strides = row_major(operand.shape)
    strided_copy(builder, operand, made, made.shape, [strides[axis] for axis in permutation])


@kernel("Concat", dtypes=None)
def lower_concat(node: Node, builder: PlanBuilder) -> None:
    """Lower a concatenation: a copy for each part that has elements; a view if only one has."""
    (result,) = node.outputs
    if join_behind(node, builder):
        return
    axis, parts = joined_parts(node, builder)
    if len(parts) == 1:
        builder.define(result, builder.operand(parts[0]))
        return
    made, operands = builder.result(result), [builder.operand(part) for part in parts]
    check_parts(builder, made, operands, axis)
    strides, start = row_major(made.shape), 0
    for part in operands:
        own = row_major(part.shape)
        place = start * strides[axis]
        strided_copy(
            builder, part, made, part.shape, own, target_strides=strides, target_offset=place
        )
        start += part.shape[axis]


def check_parts(builder: PlanBuilder, made: Operand, parts: Sequence[Operand], axis: int) -> None:
    """Raise GraphError unless the parts, side by side, are what is made."""
    lengths = [part.shape[axis] for part in parts]
    is_fit = all(
        part.shape == (*made.shape[:axis], part.shape[axis], *made.shape[axis + 1 :])
        for part in parts
    )
    if made.count and not (is_fit and sum(lengths) == made.shape[axis]):
        shapes = [list(part.shape) for part in parts]
        raise builder.contradiction(f"{shapes} are not the parts of {list(made.shape)}")


def joined_parts(node: Node, builder: PlanBuilder) -> tuple[int, list[Value]]:
    """Return the axis of a concatenation, counted from the first, and the parts with elements."""
    rank = len(builder.shape(node.outputs[0]))
    axis = builder.axis(int(node.attributes["axis"]), rank)
    given = [value for value in node.inputs if value is not None]
    if any(len(builder.shape(value)) != rank for value in given):
        raise builder.contradiction("what it joins differs in rank")
    return axis, [value for value in given if 0 not in builder.shape(value)]


@kernel("Split", dtypes=None, constant_inputs=(1,))
def lower_split(node: Node, builder: PlanBuilder) -> None:
    """Lower a split: each part is a box of the input."""
    source = node.inputs[0]
    assert source is not None
    rank = len(builder.shape(source))
    axis = builder.axis(int(node.attributes.get("axis", 0)), rank)
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
    if not _is_box(operand.shape, made.shape, begin, steps):
        raise builder.contradiction(f"{list(made.shape)} is no box of {list(operand.shape)}")
    strides = row_major(operand.shape)
    offset = sum(first * stride for first, stride in zip(begin, strides, strict=True))
    # Where the result has at most one element along an axis, a step may exceed what an int holds.
    axes = zip(strides, steps, made.shape, strict=True)
    taken = [stride * step if length > 1 else 0 for stride, step, length in axes]
    strided_copy(builder, operand, made, made.shape, taken, offset)


def _is_box(
    shape: Sequence[int], made: Sequence[int], begin: Sequence[int], steps: Sequence[int]
) -> bool:
    """True if the first and the last element along every axis are there."""
    if len(made) != len(shape) or 0 in made:
        return len(made) == len(shape)
    axes = zip(shape, made, begin, steps, strict=True)
    return all(
        0 <= first < length and 0 <= first + (count - 1) * step < length
        for length, count, first, step in axes
    )


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
    repeats = node.integers_at(1) or []
    lengths: list[int] = []
    strides: list[int] = []
    if len(repeats) != len(operand.shape):
        raise builder.contradiction(f"{repeats} do not repeat the axes of {list(operand.shape)}")
    builder.expect_shape(
        node.outputs[0], [length * n for length, n in zip(operand.shape, repeats, strict=True)]
    )
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
    seen = builder.view(operand, lengths)
    if made.count != seen.count:
        raise builder.contradiction(f"{list(operand.shape)} does not become {list(made.shape)}")
    _copy_permuted(seen, made, order, builder)


def _copy_permuted(
    source: Operand, target: Operand, order: tuple[int, ...], builder: PlanBuilder
) -> None:
    strides = row_major(source.shape)
    shape = [source.shape[axis] for axis in order]
    strided_copy(builder, source, target, shape, [strides[axis] for axis in order])
