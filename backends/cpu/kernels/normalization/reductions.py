"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.reduction import reduced_axes
from ...plans.elementwise_parameters import elementwise_axes
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..elementwise.fused_elementwise import result_dtype
from ..numpy_operators import lower_by_numpy
from ..registry import FLOATS, INTEGERS, kernel

__all__ = ["lower_reduction", "reduction_parameters"]

_KINDS: Mapping[str, int] = {
    "ReduceSum": 0,
    "ReduceMean": 1,
    "ReduceMax": 2,
    "ReduceMin": 3,
    "ReduceProd": 4,
    "ReduceL1": 5,
    "ReduceL2": 6,
    "ReduceSumSquare": 7,
    "ReduceLogSum": 8,
    "ReduceLogSumExp": 9,
}
"""Numbered as in native_reductions.c."""


@kernel(*_KINDS, dtypes=FLOATS | INTEGERS | {DType.BOOL}, constant_inputs=(1,))
def lower_reduction(node: Node, builder: PlanBuilder) -> None:
    """Lower a reduction of float32 natively, in whatever layout; of other types by numpy."""
    source, (result,) = node.inputs[0], node.outputs
    assert source is not None
    if builder.dtype(source) not in FLOATS:
        lower_by_numpy(node, builder)
        return
    shape = builder.shape(source)
    axes = reduced_axes(node, len(shape))
    operand = _walkable(builder, source)
    kept = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    layout = Layout.plain(kept, result_dtype(builder, result))
    builder.expect_count(result, layout.count)
    final = Layout.plain(builder.shape(result), layout.dtype)
    made = builder.result(result, final)
    if layout.count:
        target = made.viewed(layout)
        parameters = reduction_parameters(_KINDS[node.op_type], operand.layout, layout)
        builder.native("reduce", (operand, target), parameters)


def reduction_parameters(kind: int, source: Layout, result: Layout) -> list[int]:
    """Write the parameters of the native kernel ``reduce``; see native_reductions.c.

    The result has the source's rank, and length 1 where axes are reduced. The source is strided, or
    has blocks without padding.
    """
    strides = _repeating(result, source.shape)
    target = Layout.plain(source.shape, result.dtype, strides)
    axes = elementwise_axes([target, source]) or []
    inner = axes[-1] if axes else None
    kept = [axis for axis in axes[:-1] if axis.strides[0]]
    reduced = [axis for axis in axes[:-1] if not axis.strides[0]]
    inner_words = (1, 0, 0) if inner is None else (inner.length, inner.strides[1], inner.strides[0])
    words = [kind, source.dtype.value, result.dtype.value, len(kept), len(reduced), *inner_words]
    for axis in kept:
        words += [axis.length, axis.strides[1], axis.strides[0]]
    for axis in reduced:
        words += [axis.length, axis.strides[1]]
    return words


def _repeating(result: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Return strides that stay in place along the axes that are reduced."""
    assert result.strides is not None
    pairs = zip(result.shape, shape, result.strides, strict=True)
    return tuple(0 if have != length or length == 1 else step for have, length, step in pairs)


def _walkable(builder: PlanBuilder, value: Value) -> Operand:
    operand = builder.operand(value)
    if elementwise_axes([operand.layout]) is None:
        return builder.plain(value, operand.dtype)
    return operand
