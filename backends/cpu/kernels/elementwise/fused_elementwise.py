"""Fused elementwise operators on values: which layout the result has, and what is read as it lies.

All elementwise kernels come here. The result takes the layout of an operand of its own shape, so
that layouts run on through elementwise operators; operands in another order are reordered first,
and those that broadcast are read as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....runtime.graph import DType, Value
from ...onednn.post_ops import PostOp
from ...plans.elementwise_parameters import (
    check_broadcast,
    elementwise_axes,
    elementwise_parameters,
    where_parameters,
)
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder

__all__ = ["emit_elementwise", "lower_elementwise", "lower_where", "result_dtype", "result_layout"]


def lower_elementwise(
    builder: PlanBuilder,
    inputs: Sequence[Value],
    result: Value,
    steps: Sequence[PostOp],
    *,
    kernel: str = "float_elementwise",
    others: Sequence[Operand] = (),
) -> None:
    """Lower a fused group that begins with the first input; steps name their operands by index.

    Inputs broadcast to the result, on both sides. ``others`` are counted after them: operands that
    are no values. ``kernel`` is ``float_elementwise`` or ``integer_elementwise``. In place where
    the layouts and later uses allow it.
    """
    _expect_broadcast(builder, [*map(builder.shape, inputs), *(o.shape for o in others)], result)
    layout = result_layout(builder, inputs, result)
    if not layout.count:
        builder.result(result, layout)
        return
    reads = [*(_aligned(builder, value, layout) for value in inputs), *others]
    parts = [steps[at : at + _MAX_STEPS] for at in range(0, len(steps), _MAX_STEPS)] or [()]
    over = _overwritable(builder, reads, layout) if len(parts) == 1 else None
    made = builder.result(result, layout, over=over)
    for part in parts:
        used = [step.operand for step in part if step.operand is not None]
        given = [reads[0], *(reads[index] for index in used)]
        emit_elementwise(builder, given, made, _renumbered(part, used), kernel)
        reads[0] = made


def _renumbered(steps: Sequence[PostOp], used: list[int]) -> Sequence[PostOp]:
    """Count the operands of steps from 1 in the order of ``used``."""
    if used == [*range(1, len(used) + 1)]:
        return steps
    return [
        step
        if step.operand is None
        else step.counted_from(1 + used.index(step.operand) - step.operand)
        for step in steps
    ]


def lower_where(
    builder: PlanBuilder, condition: Value, choices: Sequence[Value], result: Value
) -> None:
    """Lower a choice between two values of one type, of 1, 2, 4 or 8 bytes an element."""
    shapes = [builder.shape(value) for value in (condition, *choices)]
    _expect_broadcast(builder, shapes, result)
    layout = result_layout(builder, choices, result)
    if not layout.count:
        builder.result(result, layout)
        return
    reads = [_aligned(builder, condition, layout)]
    for value in choices:
        operand = _aligned(builder, value, layout)
        if operand.dtype is not layout.dtype:
            operand = builder.plain(value, layout.dtype)
        reads.append(operand)
    made = builder.result(result, layout, over=_overwritable(builder, reads, layout))
    layouts = [operand.layout for operand in (*reads, made)]
    axes = elementwise_axes(layouts)
    assert axes is not None
    builder.native("where", (*reads, made), where_parameters(layouts, axes))


def _expect_broadcast(builder: PlanBuilder, shapes: Sequence[Sequence[int]], result: Value) -> None:
    """Ask for a result that is as long as its inputs make it."""
    shape = builder.shape(result)
    for axis, length in enumerate(reversed(shape), 1):
        if length != 1 and not any(
            given[-axis:][:1] == (length,) for given in shapes if len(given) >= axis
        ):
            raise builder.contradiction(
                f"{result.name!r} is {list(shape)}, and its inputs are {[*map(list, shapes)]}"
            )
    for given in shapes:
        if builder.is_traced or given != shape:  # an answer is a guard there
            check_broadcast(given, shape)


def emit_elementwise(
    builder: PlanBuilder,
    reads: Sequence[Operand],
    target: Operand,
    steps: Sequence[PostOp],
    kernel: str = "float_elementwise",
) -> None:
    """Emit a fused group on operands whose layouts are strided, or blocked as the target's is."""
    if not target.layout.count:
        return
    layouts = tuple([operand.layout for operand in (*reads, target)])
    key = (kernel, layouts, tuple(steps))
    parameters = None if builder.is_traced else builder.elementwise_parameters.get(key)
    if parameters is None:
        axes = elementwise_axes(layouts)
        assert axes is not None
        parameters = tuple(elementwise_parameters(kernel, layouts, axes, steps))
        if not builder.is_traced:
            builder.elementwise_parameters[key] = parameters
    builder.native(kernel, (*reads, target), parameters)


def result_layout(builder: PlanBuilder, inputs: Sequence[Value], result: Value) -> Layout:
    """Choose the layout of an elementwise result.

    That of most operands that have its shape and are dense; the first of them on a tie. Row-major
    if there is none, and for an output of the network, which is written at once.
    """
    shape, dtype = builder.shape(result), result_dtype(builder, result)
    if result.is_graph_output:
        return Layout.plain(shape, dtype)
    counts: dict[tuple[int, ...] | int, int] = {}
    found: dict[tuple[int, ...] | int, Layout] = {}
    for value in inputs:
        if value.constant is not None:
            continue
        operand = builder.operand(value)
        if operand.shape != shape:
            continue
        order, layout = _order(operand.layout), _with_dtype(operand.layout, dtype)
        if order is not None and layout is not None:
            counts[order] = counts.get(order, 0) + 1
            found.setdefault(order, layout)
    if not counts:
        return Layout.plain(shape, dtype)
    return found[max(counts, key=counts.__getitem__)]


def result_dtype(builder: PlanBuilder, result: Value) -> DType:
    """Choose a result's element type in memory: the graph's own for an output of the network."""
    return builder.dtype(result) if result.is_graph_output else builder.held_dtype(result)


def _order(layout: Layout) -> tuple[int, ...] | int | None:
    """Return the order of a dense layout; None for one with gaps, repeats or padding."""
    if layout.strides is None:
        blocked = layout.blocked_strides
        return None if blocked is None else (*blocked[:2], *blocked[2])
    axes = [axis for axis, length in enumerate(layout.shape) if length != 1]
    axes.sort(key=lambda axis: -_strides(layout)[axis])
    reach = 1
    for axis in reversed(axes):
        if _strides(layout)[axis] != reach:
            return None
        reach *= layout.shape[axis]
    return -1 if axes == sorted(axes) else tuple(axes)


def _strides(layout: Layout) -> tuple[int, ...]:
    assert layout.strides is not None
    return layout.strides


def _with_dtype(layout: Layout, dtype: DType) -> Layout | None:
    """Change the element type; None for a blocked layout of another one."""
    if layout.dtype is dtype:
        return layout
    if layout.strides is None:
        return None
    return Layout.plain(layout.shape, dtype, layout.strides)


def _aligned(builder: PlanBuilder, value: Value, layout: Layout) -> Operand:
    """Return a value so that it can be walked in the result's order."""
    operand = builder.operand(value)
    is_full = operand.shape == layout.shape and operand.layout.has_desc
    if is_full and not _walks_alike(operand.layout, layout):
        wanted = _with_dtype(layout, operand.dtype)
        if wanted is not None:
            return builder.reordered(value, wanted.desc(builder.engine))
    is_strided = operand.layout.strides is not None and layout.strides is not None
    if not is_strided and elementwise_axes([operand.layout, layout]) is None:
        return builder.plain(value, operand.dtype)
    return operand


def _walks_alike(layout: Layout, result: Layout) -> bool:
    """True if the result's innermost axis is the operand's, too."""
    if layout.strides is None or result.strides is None:
        return layout == result
    return layout.count < _FEW or _innermost(layout) == _innermost(result)


_MAX_STEPS = 24
"""Steps of one native call, which takes up to 32 operands."""

_FEW = 256
"""Elements that are faster read in any order than reordered by a step of their own."""


def _innermost(layout: Layout) -> int:
    axes = [axis for axis, length in enumerate(layout.shape) if length != 1]
    return min(axes, key=lambda axis: (_strides(layout)[axis], -axis), default=-1)


def _overwritable(builder: PlanBuilder, reads: Sequence[Operand], layout: Layout) -> Operand | None:
    """Find an operand that the result may take the place of, element by element."""
    for operand in reads:
        if not _is_same_place(operand.layout, layout) or not builder.can_overwrite(operand):
            continue
        others = [other for other in reads if other.buffer is operand.buffer]
        if all(
            other.offset_bytes == operand.offset_bytes and other.layout == operand.layout
            for other in others
        ):
            return operand
    return None


def _is_same_place(layout: Layout, result: Layout) -> bool:
    if layout.shape != result.shape or layout.dtype.item_bytes != result.dtype.item_bytes:
        return False
    if layout.strides is None or result.strides is None:
        return layout == result
    pairs = zip(layout.shape, layout.strides, result.strides, strict=True)
    return all(length == 1 or a == b for length, a, b in pairs)
