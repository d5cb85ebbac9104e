"""Operators that only look at memory in another way: no step is emitted where a view will do."""

from __future__ import annotations

from collections.abc import Sequence

from .....runtime.graph import Node, Value
from .....runtime.lowering.slice import slice_box
from ...onednn.bindings import OneDnnError
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import reshaped_strides
from ..registry import kernel

__all__ = ["sliced"]


@kernel("Identity", dtypes=None)
def lower_identity(node: Node, builder: PlanBuilder) -> None:
    """Lower what changes nothing."""
    source = node.inputs[0]
    assert source is not None
    builder.define(node.outputs[0], builder.operand(source))


@kernel("Reshape", "Flatten", "Squeeze", "Unsqueeze", dtypes=None, constant_inputs=(1,))
def lower_reshape(node: Node, builder: PlanBuilder) -> None:
    """Lower what keeps the elements in their row-major order; copies only what lies otherwise."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    shape, operand = builder.shape(result), builder.operand(source)
    layout = operand.layout
    builder.expect_count(result, layout.count)
    if layout.strides is not None:
        strides = reshaped_strides(layout.shape, layout.strides, shape)
        if strides is not None:
            view = Layout.plain(shape, operand.dtype, strides)
            builder.define(result, operand.viewed(view))
            return
    flat = builder.plain(source, operand.dtype)
    builder.define(result, flat.viewed(Layout.plain(shape, flat.dtype)))


@kernel("Transpose", dtypes=None)
def lower_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a permutation of axes to a view; a kernel that needs another order reorders it."""
    (source,) = node.inputs
    assert source is not None
    (result,) = node.outputs
    operand = builder.operand(source)
    rank = len(operand.shape)
    permutation = list(node.attributes.get("perm") or range(rank)[::-1])
    if sorted(permutation) != list(range(rank)):
        raise builder.contradiction(f"{permutation} is no order of {rank} axes")
    builder.define(result, permuted(operand, permutation, builder))


def permuted(operand: Operand, permutation: Sequence[int], builder: PlanBuilder) -> Operand:
    """View an operand with its axes in another order."""
    layout = operand.layout
    if layout.strides is None:
        return operand.viewed(Layout.of(layout.desc(builder.engine).permuted(permutation)))
    return operand.viewed(
        Layout.plain(
            [layout.shape[axis] for axis in permutation],
            layout.dtype,
            [layout.strides[axis] for axis in permutation],
        )
    )


@kernel("Split", dtypes=None, constant_inputs=(1,))
def lower_split(node: Node, builder: PlanBuilder) -> None:
    """Lower a split: each part is a view."""
    source = node.inputs[0]
    assert source is not None
    whole = builder.shape(source)
    rank = len(whole)
    axis = builder.axis(int(node.attributes.get("axis", 0)), rank)
    start = 0
    for result in node.outputs:
        shape = builder.shape(result)
        builder.expect_shape(result, (*whole[:axis], *shape[axis : axis + 1], *whole[axis + 1 :]))
        begin = [0] * rank
        begin[axis] = start
        start += shape[axis]
        builder.define(result, sliced(source, builder, begin, shape))


@kernel("Slice", dtypes=None, constant_inputs=(1, 2, 3, 4))
def lower_slice(node: Node, builder: PlanBuilder) -> None:
    """Lower a slice: a view, but for steps backwards, which are copied."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    begin, step = slice_box(node, builder.shape(source))
    builder.define(result, sliced(source, builder, begin, builder.shape(result), step))


def sliced(
    source: Value,
    builder: PlanBuilder,
    begin: Sequence[int],
    shape: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Operand:
    """View a box of a value, every ``steps``-th element of each axis; copies where it must."""
    operand = builder.operand(source)
    steps = [1] * len(shape) if steps is None else steps
    _check_box(operand.shape, begin, shape, steps, builder)
    if 0 in shape:
        return operand.viewed(Layout.plain(shape, operand.dtype))
    if operand.layout.strides is None and all(step == 1 for step in steps):
        desc = operand.layout.desc(builder.engine)
        try:
            # The place goes into the operand: descriptors with an offset tell no size.
            offset = desc.part(shape, begin).offset
            return operand.viewed(Layout.of(desc.part(shape, [0] * len(shape))), offset)
        except OneDnnError:  # a block would be cut
            pass
    if operand.layout.strides is None:
        operand = builder.plain(source, operand.dtype)
    strides = operand.layout.strides
    assert strides is not None
    offset = sum(first * stride for first, stride in zip(begin, strides, strict=True))
    taken = [stride * step for stride, step in zip(strides, steps, strict=True)]
    view = operand.viewed(Layout.plain(shape, operand.dtype, taken), offset)
    if all(step > 0 for step in steps):
        return view
    made = builder.temporary(Layout.plain(shape, operand.dtype))
    builder.copy(view, made)
    return made


def _check_box(
    whole: Sequence[int],
    begin: Sequence[int],
    shape: Sequence[int],
    steps: Sequence[int],
    builder: PlanBuilder,
) -> None:
    """Refuse a box that reaches out of what it is taken from."""
    if len(shape) != len(whole):
        raise builder.contradiction(f"{list(shape)} is no part of {list(whole)}")
    for length, first, count, step in zip(whole, begin, shape, steps, strict=True):
        last = first + (count - 1) * step
        if count and not (0 <= first < length and 0 <= last < length and (step or count == 1)):
            raise builder.contradiction(
                f"{count} elements from {first} on, in steps of {step}, are no part of {length}"
            )
