"""Resize: elements are repeated or interpolated, one axis after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node, Value
from ....runtime.lowering.resize import (
    find_unknown_setting,
    indices_of,
    is_repeating,
    resamplings,
    weighted_indices_of,
)
from ....runtime.operators.images.resampling import WeightedIndices
from ....runtime.passes.rewriting.matching import dtype_of
from ..elementwise.c_types import C_TYPES, FLOATS
from ..elementwise.fused_launch import line_groups
from ..launching.kernel_source import KernelSource
from ..launching.reach import elements, whole
from ..launching.table_gather import table_operand, take
from ..operand import Operand
from ..plan_builder import PlanBuilder
from .registry import kernel

_TEXT = """
__kernel void $name(__global const {x_memory} *x, __global const int *places,
                    __global const float *weights, __global const float *offsets,
                    __global {y_memory} *y, const int count, const int made, const int taps,
                    const int length, const int inner) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int row = i / inner, at = row % made;
    const int from = row / made * length * inner + i % inner;
    float sum = offsets[at];
    for (int k = at * taps; k < (at + 1) * taps; k++) {{
        const float weight = weights[k];
        if (weight != 0.0f) sum += weight * {x};
    }}
    {store}
}}
"""


def _refuses(node: Node) -> str | None:
    unknown = find_unknown_setting(node)
    if unknown is not None:
        return unknown
    if not is_repeating(node) and dtype_of(node.inputs[0]) not in FLOATS:
        return "it interpolates floats only; other types with mode nearest, without cropping"
    return None


@kernel("Resize", dtypes=None, refuses=_refuses, constant_inputs=(1, 2, 3))
def lower_resize(node: Node, builder: PlanBuilder) -> None:
    """Lower a change of resolution: a launch for each axis that changes."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand, wanted = builder.operand(source), builder.shape(result)
    if 0 in operand.shape or 0 in wanted:
        builder.result(result)
        return
    axes = resamplings(node, operand.shape, wanted)
    if is_repeating(node):
        made = operand
        for axis, item in axes.items():
            made = _repeat(made, axis, indices_of(node, item), builder)
        builder.define(result, made)
    else:
        taps = {axis: weighted_indices_of(node, item) for axis, item in axes.items()}
        _interpolate_all(operand, result, taps, builder)


def _repeat(
    source: Operand, axis: int, table: np.ndarray[Any, Any], builder: PlanBuilder
) -> Operand:
    length = source.shape[axis]
    if len(table) == length and (table == np.arange(length)).all():
        return source
    made = builder.temporary(_with_length(source.shape, axis, len(table)), source.dtype)
    take(builder, source, made, axis, table_operand(builder, table))
    return made


def _interpolate_all(
    operand: Operand, result: Value, taps: dict[int, WeightedIndices], builder: PlanBuilder
) -> None:
    """Interpolate axis by axis, in float32 between the first and the last."""
    changed = [axis for axis in taps if not taps[axis].is_identity(operand.shape[axis])]
    if not changed:
        builder.define(result, operand)
        return
    for axis in changed[:-1]:
        shape = _with_length(operand.shape, axis, len(taps[axis].indices))
        made = builder.temporary(shape, DType.FLOAT32)
        _interpolate(operand, made, axis, taps[axis], builder)
        operand = made
    _interpolate(operand, builder.result(result), changed[-1], taps[changed[-1]], builder)


def _interpolate(
    source: Operand, target: Operand, axis: int, taps: WeightedIndices, builder: PlanBuilder
) -> None:
    x, y = C_TYPES[source.dtype], C_TYPES[target.dtype]
    text = _TEXT.format(
        x_memory=x.memory,
        y_memory=y.memory,
        x=x.load("x", "from + places[k] * inner"),
        store=y.store("sum", "y", "i"),
    )
    tables = (taps.indices, taps.weights, taps.offsets)
    places, weights, offsets = (table_operand(builder, table) for table in tables)
    length, inner = source.shape[axis], math.prod(source.shape[axis + 1 :])
    numbers = (target.count, *taps.indices.shape, length, inner)
    outer = math.prod(source.shape[:axis])
    if target.shape != _with_length(source.shape, axis, len(taps.indices)):
        raise builder.contradiction(f"{list(source.shape)} does not become {list(target.shape)}")
    if taps.indices.size and not 0 <= taps.indices.min() <= taps.indices.max() < length:
        raise builder.contradiction(f"its taps are not all in an axis of {length} elements")
    builder.launch(
        KernelSource.of("interpolate", text),
        [source, places, weights, offsets, target, *numbers],
        *line_groups(builder, target.count),
        [
            elements(outer * length * inner, source.dtype),
            *[elements(taps.indices.size, DType.FLOAT32)] * 2,
            elements(len(taps.indices), DType.FLOAT32),
            whole(target),
        ],
    )


def _with_length(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])
