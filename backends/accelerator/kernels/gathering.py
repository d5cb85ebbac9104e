"""Lookups by indices that a run brings along: Gather, GatherElements, GatherND.

Negative indices count from the end. A device cannot refuse an index that is out of bounds; it reads
nothing there and gives 0. Indices that are known are checked when the node is lowered.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....errors import UnsupportedOpError
from ....runtime.graph import Node, Value
from ....runtime.lowering.strides import row_major
from ..elementwise.c_types import C_TYPES, ELEMENT_WORDS
from ..elementwise.fused_launch import line_groups
from ..elementwise.operand_walk import index_code, plan_walk
from ..launching.kernel_source import KernelSource
from ..launching.reach import box, elements, whole
from ..launching.strided_copy import strided_copy
from ..launching.table_gather import PLACE_TYPES, TAKEN_PLACE, take
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .registry import kernel

_ELEMENTS_TEXT = """
__kernel void $name(__global const {word} *x, __global const {kind} *indices, __global {word} *y,
                    const int count, const int length, const int stride{lengths}) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    {lines}
    {taken}
    y[i] = is_inside ? x[{read} + (int)place * stride] : 0;
}}
"""

_ROWS_TEXT = """
__kernel void $name(__global const {word} *x, __global const {kind} *indices, __global {word} *y,
                    const int count, const int inner, const int rows{lengths}) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int row = i / inner;
    int from = row / rows, is_found = 1;
    {steps}
    y[i] = is_found ? x[from * inner + i % inner] : 0;
}}
"""

_ROWS_STEP = """
    {{
        const int length = n{axis};
        {taken}
        is_found = is_found && is_inside;
        from = from * length + (int)place;
    }}
"""


@kernel("Gather", dtypes=None)
def lower_gather(node: Node, builder: PlanBuilder) -> None:
    """Lower a lookup along one axis; a single known index is a copy of a box."""
    source, indices = _inputs(node)
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    axis = builder.axis(int(node.attributes.get("axis", 0)), len(operand.shape))
    if not operand.shape:
        raise builder.contradiction("it looks up nothing in a scalar")
    builder.expect_shape(
        node.outputs[0],
        (*operand.shape[:axis], *builder.shape(indices), *operand.shape[axis + 1 :]),
    )
    length, known = operand.shape[axis], indices.constant
    if known is not None:
        _check(node, builder, known, length)
    if known is None or known.size != 1:
        take(builder, operand, made, axis, builder.operand(indices))
        return
    strides = row_major(operand.shape)
    shape = (*operand.shape[:axis], 1, *operand.shape[axis + 1 :])
    first = int(known.reshape(-1)[0]) % length
    strided_copy(builder, operand, made, shape, strides, first * strides[axis])


@kernel("GatherElements", dtypes=None)
def lower_gather_elements(node: Node, builder: PlanBuilder) -> None:
    """Lower a lookup with an index for each element of the result."""
    source, indices = _inputs(node)
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    index = builder.operand(indices)
    axis = builder.axis(int(node.attributes.get("axis", 0)), len(operand.shape))
    _check_elements(operand, index, made, axis, builder)
    if indices.constant is not None:
        _check(node, builder, indices.constant, operand.shape[axis])
    strides = row_major(operand.shape)
    others = [0 if own == axis else stride for own, stride in enumerate(strides)]
    code = index_code(plan_walk(made.shape, [others]), "i", "w")
    kind = C_TYPES[index.dtype].memory
    text = _ELEMENTS_TEXT.format(
        word=ELEMENT_WORDS[made.dtype.item_bytes],
        kind=kind,
        lengths="".join(f", const int {name}" for name, _ in code.parameters),
        lines="\n    ".join(code.lines),
        taken=TAKEN_PLACE.format(kind=kind, place="indices[i]"),
        read=code.expressions[0],
    )
    arguments: list[LaunchArgument] = [operand, index, made, made.count]
    arguments += [operand.shape[axis], strides[axis], *(number for _, number in code.parameters)]
    reach = box((*made.shape, operand.shape[axis]), (*others, strides[axis]), made.dtype)
    reaches = [reach, elements(made.count, index.dtype), whole(made)]
    source_text = KernelSource.of("gather_elements", text)
    builder.launch(source_text, arguments, *line_groups(builder, made.count), reaches)


def _check_elements(
    source: Operand, index: Operand, made: Operand, axis: int, builder: PlanBuilder
) -> None:
    lengths = zip(source.shape, index.shape, strict=len(source.shape) == len(index.shape))
    is_within = all(n <= length for own, (length, n) in enumerate(lengths) if own != axis)
    if (
        not source.shape
        or len(index.shape) != len(source.shape)
        or not is_within
        or made.shape != index.shape
        or index.dtype not in PLACE_TYPES
    ):
        raise builder.contradiction(
            f"{index.dtype.label}{list(index.shape)} finds no {list(made.shape)} in "
            f"{list(source.shape)}"
        )


@kernel("GatherND", dtypes=None)
def lower_gather_nd(node: Node, builder: PlanBuilder) -> None:
    """Lower a lookup of slices by rows of indices."""
    source, indices = _inputs(node)
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    index = builder.operand(indices)
    batch_rank, depth = int(node.attributes.get("batch_dims", 0)), math.prod(index.shape[-1:])
    looked_up = operand.shape[batch_rank : batch_rank + depth]
    rest = operand.shape[batch_rank + depth :]
    is_there = 0 <= batch_rank < len(index.shape) and depth == len(looked_up) > 0
    if (
        not is_there
        or operand.shape[:batch_rank] != index.shape[:batch_rank]
        or made.shape != (*index.shape[:-1], *rest)
        or index.dtype not in PLACE_TYPES
    ):
        raise builder.contradiction(
            f"{index.dtype.label}{list(index.shape)} finds no {list(made.shape)} in "
            f"{list(operand.shape)}"
        )
    if indices.constant is not None:
        for number, length in enumerate(looked_up):
            _check(node, builder, indices.constant[..., number], length)
    kind = C_TYPES[index.dtype].memory
    steps = [
        _ROWS_STEP.format(
            axis=axis,
            taken=TAKEN_PLACE.format(kind=kind, place=f"indices[row * {depth} + {axis}]"),
        )
        for axis in range(depth)
    ]
    text = _ROWS_TEXT.format(
        word=ELEMENT_WORDS[made.dtype.item_bytes],
        kind=kind,
        lengths="".join(f", const int n{axis}" for axis in range(depth)),
        steps="".join(steps),
    )
    inner = math.prod(rest)
    rows = math.prod(index.shape[batch_rank:-1])
    arguments: list[LaunchArgument] = [operand, index, made, made.count, inner, rows, *looked_up]
    found = made.count // max(1, inner)
    reaches = [
        elements(found // max(1, rows) * math.prod(looked_up) * inner, made.dtype),
        elements(found * depth, index.dtype),
        whole(made),
    ]
    source_text = KernelSource.of("gather_nd", text)
    builder.launch(source_text, arguments, *line_groups(builder, made.count), reaches)


def _inputs(node: Node) -> tuple[Value, Value]:
    source, indices = node.inputs
    assert source is not None
    assert indices is not None
    return source, indices


def _check(node: Node, builder: PlanBuilder, indices: np.ndarray[Any, Any], length: int) -> None:
    outside = indices[(indices < -length) | (indices >= length)]
    if outside.size:
        reason = f"index {int(outside.reshape(-1)[0])} is outside of an axis of length {length}"
        raise UnsupportedOpError(node.name, node.op, builder.device, reason)
