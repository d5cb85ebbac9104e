"""Small matmuls without oneDNN, which takes longer to begin than they take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Value
from ...onednn.post_ops import PostOp
from ...onednn.unary_steps import FLOAT32_MOST
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder

__all__ = ["is_small", "lower_small_matmul"]

Array = np.ndarray[Any, Any]

MOST_MULTIPLICATIONS = 4096  # a tenth of a microsecond; oneDNN needs half of one to begin
MOST_BYTES = 16 * 1024  # of weights: they should be in the first cache

_RECTIFIED: Mapping[tuple[PostOp, ...], int] = {
    (): 0,
    (PostOp.unary("relu"),): 1,
    (PostOp.unary("clip", 0.0, FLOAT32_MOST),): 2,  # a Clip from 0 without an upper bound
}
"""What the native kernel does behind the sums, and how that is told it."""


def is_small(
    sides: tuple[Sequence[int], Sequence[int], Sequence[int]],
    dtype: DType,
    post_ops: Sequence[PostOp],
) -> bool:
    """Decide whether the native kernel multiplies matrices of these lengths. Pure."""
    left, right, result = sides
    if not len(left) == len(right) == len(result) == 2 or dtype is not DType.FLOAT32:
        return False
    if math.prod(left) * right[1] > MOST_MULTIPLICATIONS or math.prod(right) * 4 > MOST_BYTES:
        return False
    return tuple(post_ops) in _RECTIFIED


def lower_small_matmul(
    builder: PlanBuilder,
    result: Value,
    left: Operand,
    weights: Array,
    bias: Value | None,
    post_ops: Sequence[PostOp],
) -> None:
    """Emit the matmul of row-major matrices, with a bias for each column where there is one.

    weights: (inner, columns), a constant of the model or derived from one.
    """
    inner, columns = weights.shape
    rows = left.layout.count // inner if inner else 0
    operands = [left, builder.constant_operand(weights)]
    if bias is not None:
        operands.append(builder.plain(bias, DType.FLOAT32))
    made = builder.result(result, Layout.plain(builder.shape(result), DType.FLOAT32))
    parameters = (rows, inner, columns, bias is not None, _RECTIFIED[tuple(post_ops)])
    builder.native("small_matmul", (*operands, made), parameters)
