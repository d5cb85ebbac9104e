"""Transposed convolutions as one matmul, whose columns are then added up where windows overlap.

The matmul makes of each element of the input all that it adds to the result; a native kernel folds
that into the image. oneDNN's own way is slower of one element; without AVX-512 its way with strides
is, too, as long as the columns stay in a cache. Of fewer channels than a vector has lanes phases
(transposed_phases.py) are faster, unless they have to be filled up with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Value
from .....runtime.lowering.window import Window
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...precision import has_avx512
from ..matrices.matmul import constant_matmul
from .pooling import channels_last

__all__ = ["emit_columns", "goes_by_columns"]

MOST_COLUMN_BYTES = 3 << 19
"""What stays in a second-level cache, more or less; of more, oneDNN's way is as fast."""
_AVX512_LANES = 16
_MAX_AXES = 2

Array = np.ndarray[Any, Any]


def goes_by_columns(
    window: Window, weights: Sequence[int], source: Sequence[int], instruction_set: int
) -> bool:
    """True where this is the fastest; ``weights`` are (C, M, ...), of one group. Pure."""
    if len(window.kernel) > _MAX_AXES:
        return False
    parts, stride = math.prod(window.kernel), math.prod(window.strides)
    is_single = math.prod(source[2:]) == 1
    fills_lanes = weights[1] >= _AVX512_LANES
    if not is_single and (has_avx512(instruction_set) if fills_lanes else _is_divided(window)):
        return False
    columns = source[0] * math.prod(source[2:]) * math.prod(weights[1:])
    return (is_single or 1 < stride < parts) and columns * 4 <= MOST_COLUMN_BYTES


def _is_divided(window: Window) -> bool:
    """True if strides divide windows, so that all phases have as many taps."""
    return not any(window.reach(axis) % stride for axis, stride in enumerate(window.strides))


def emit_columns(
    builder: PlanBuilder, source: Value, weights: Array, window: Window, target: Operand
) -> None:
    """Emit the sums into a place whose channels are innermost."""
    shape = builder.shape(source)
    read, made = weights.shape[:2]
    layout = channels_last(shape, DType.FLOAT32)
    count = shape[0] * math.prod(shape[2:])
    rows = builder.reordered(source, layout.desc(builder.engine))
    matrix = builder.derived(
        "columns of windows",
        (weights,),
        lambda: np.ascontiguousarray(np.moveaxis(weights, 1, -1).reshape(read, -1)),
    )
    columns = builder.temporary(Layout.plain((count, matrix.shape[1]), DType.FLOAT32))
    left = rows.viewed(Layout.plain((count, read), DType.FLOAT32))
    constant_matmul(builder, left, matrix, columns)
    axes = [
        (length, *numbers)
        for length, *numbers in zip(
            shape[2:],
            window.kernel,
            window.strides,
            window.dilations,
            window.pads_begin,
            strict=True,
        )
    ]
    lengths = list(target.shape[2:])
    while len(axes) < _MAX_AXES:
        axes.insert(0, (1, 1, 1, 1, 0))
        lengths.insert(0, 1)
    numbers = [number for axis in axes for number in axis]
    builder.native("fold_columns", (columns, target), (shape[0], made, *lengths, *numbers))
