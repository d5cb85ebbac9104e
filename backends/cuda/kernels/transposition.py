"""Transpose of matrices through local memory, so that it reads and writes whole lines of memory.

A Transpose is one of matrices where, axes that stay together taken as one, the last two change
places: channels from first to last and back are. Others are strided copies, whose innermost axis
mostly stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.graph import Node
from ...accelerator.elementwise.c_types import ELEMENT_WORDS
from ...accelerator.kernels.movement import lower_transpose as lower_by_strides
from ...accelerator.launching.kernel_source import KernelSource
from ...accelerator.launching.reach import elements
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from .registry import kernel

__all__ = ["has_room_for_tiles", "launch_transposition", "matrices_of"]

_TILE, _ROWS = 32, 8
"""Edge of a tile, and how many of its rows a group reads at once."""
_LEAST = 8
"""Edge of a matrix from which a tile is better than reading across."""

_TEXT = f"""
__kernel void $name(__global const {{word}} *x, __global {{word}} *y, const int rows,
                    const int columns) {{{{
    __local {{word}} tile[{_TILE}][{_TILE + 1}];
    const int start = get_global_id(2) * rows * columns;
    const int top = get_group_id(1) * {_TILE}, left = get_group_id(0) * {_TILE};
    const int across = get_local_id(0), first = get_local_id(1);
    for (int k = first; k < {_TILE}; k += {_ROWS})
        if (top + k < rows && left + across < columns)
            tile[k][across] = x[start + (top + k) * columns + left + across];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = first; k < {_TILE}; k += {_ROWS})
        if (left + k < columns && top + across < rows)
            y[start + (left + k) * rows + top + across] = tile[across][k];
}}}}
"""


@kernel("Transpose", dtypes=None)
def lower_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a permutation of axes of any type."""
    (source,) = node.inputs
    assert source is not None
    shape = builder.shape(source)
    order = [int(axis) for axis in node.attributes.get("perm") or range(len(shape))[::-1]]
    is_order = sorted(order) == list(range(len(shape)))
    matrices = matrices_of(shape, order) if is_order else None
    if matrices is None or not has_room_for_tiles(builder):
        lower_by_strides(node, builder)
        return
    builder.expect_shape(node.outputs[0], [shape[axis] for axis in order])
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    launch_transposition(builder, operand, made, matrices)


def matrices_of(shape: Sequence[int], order: Sequence[int]) -> tuple[int, int, int] | None:
    """Return count, rows and columns of the matrices that a Transpose turns. Pure.

    None if it turns none, or such narrow ones that a copy is as good.
    """
    if 0 in shape:
        return None
    axes = [axis for axis in order if shape[axis] != 1]
    there = sorted(axes)
    kept = next((place for place, axis in enumerate(axes) if axis != there[place]), len(axes))
    moved = axes[kept:]
    turn = next((place for place in range(1, len(moved)) if moved[place] < moved[place - 1]), 0)
    if not turn or moved[turn:] + moved[:turn] != there[kept:]:
        return None
    count, rows, columns = (
        math.prod(shape[axis] for axis in part)
        for part in (axes[:kept], moved[turn:], moved[:turn])
    )
    return (count, rows, columns) if min(rows, columns) >= _LEAST else None


def has_room_for_tiles(builder: PlanBuilder) -> bool:
    """True if a group of the device can have as many work-items as a tile wants."""
    return builder.work_group_size >= _TILE * _ROWS


def launch_transposition(
    builder: PlanBuilder, source: Operand, made: Operand, matrices: tuple[int, int, int]
) -> None:
    """Launch a Transpose of a batch of matrices."""
    count, rows, columns = matrices
    text = _TEXT.format(word=ELEMENT_WORDS[made.dtype.item_bytes])
    tiles = -(-columns // _TILE), -(-rows // _TILE)
    builder.launch(
        KernelSource.of("transpose", text),
        [source, made, rows, columns],
        (tiles[0] * _TILE, tiles[1] * _ROWS, count),
        (_TILE, _ROWS, 1),
        [elements(count * rows * columns, made.dtype)] * 2,
    )
