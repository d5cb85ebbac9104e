"""Operands of matmuls without gaps between their rows, where oneDNN multiplies those faster.

Matmuls that were joined, as those of queries, keys and values, leave rows that are parts of longer
ones. oneDNN's kernels for AVX-512 take none of these; what does, its general matmul, is slower and
writes all its code before the first run of a process, which takes 30 ms.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....runtime.graph import DType
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import memory_order, ordered_strides
from ...precision import has_avx512

__all__ = ["gap_free", "gap_free_layout"]

_MOST_AXES = 4
"""Of more oneDNN's kernels take no other order than row-major."""


def gap_free(
    builder: PlanBuilder, left: Operand, right: Operand, target: Layout
) -> tuple[Operand, Operand]:
    """Return two operands of a matmul as they are, or copied, which is emitted.

    Templates keep what there is: one general matmul serves plans of all lengths.
    """
    if builder.keeps_gaps or not has_avx512(builder.engine.instruction_set):
        return left, right
    layouts = [gap_free_layout(item) for item in (left.layout, right.layout, target)]
    if None in layouts or layouts[2] != target:
        return left, right
    return _moved(builder, left, layouts[0]), _moved(builder, right, layouts[1])


def gap_free_layout(layout: Layout) -> Layout | None:
    """Return a layout with the same order of axes that has no gaps, or itself; None if it may not.

    Pure.
    """
    shape, strides = layout.shape, layout.strides
    if strides is None or layout.dtype is not DType.FLOAT32 or not 2 <= len(shape) <= _MOST_AXES:
        return None
    if 0 in shape or any(dim > 1 and step <= 0 for dim, step in zip(shape, strides, strict=True)):
        return None
    return Layout.plain(shape, layout.dtype, _dense(shape, strides))


def _dense(shape: Sequence[int], strides: Sequence[int]) -> Sequence[int]:
    dense = ordered_strides(shape, memory_order(strides))
    pairs = zip(shape, strides, dense, strict=True)
    return strides if all(dim == 1 or step == wanted for dim, step, wanted in pairs) else dense


def _moved(builder: PlanBuilder, operand: Operand, wanted: Layout | None) -> Operand:
    if wanted is None or wanted == operand.layout:
        return operand
    made = builder.temporary(wanted)
    builder.move(operand, made)
    return made
