"""How cuBLAS is given a matmul, and which of its later steps go along: decisions alone. Pure.

cuBLASLt adds a row to all rows, adds what lies like the result, and applies one activation, which
it does not have behind the second kind of sum. What of a node's steps has this form is left to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...accelerator.elementwise.fused_step import FusedStep, steps_behind
from ...accelerator.elementwise.operand_walk import plan_walk
from ...accelerator.kernels.matmul import Matmul
from ..matrix_layout import stored_transposed
from .library_call import FittedSteps

__all__ = ["MatmulShape", "fit_steps", "one_batch", "should_turn"]

_VECTOR_BYTES = 16
"""What a thread loads at once, if rows or columns begin at a multiple of it."""


@dataclass(frozen=True)
class MatmulShape:
    """``batch`` matmuls of m x k by k x n; strides are in elements, a batch stride of 0 shares."""

    batch: int
    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    a_batch_stride: int = 0
    b_batch_stride: int = 0


def one_batch(matmul: Matmul) -> MatmulShape | None:
    """Describe a matmul as one strided batch; None if it is empty, or is no such batch.

    Rows of many matrices that are multiplied by one are rows of one matrix.
    """
    m, n, k = matmul.lengths
    if 0 in (*matmul.batch, *matmul.lengths):
        return None
    walk = plan_walk(matmul.batch, [matmul.left.batch, matmul.right.batch])
    lengths, (lefts, rights) = walk.lengths, walk.strides
    row, column = matmul.left.strides
    if len(lengths) == 1 and not rights[0] and (m == 1 or lefts[0] == m * row):
        row = lefts[0] if m == 1 else row
        m, lengths = m * lengths[0], ()
    if len(lengths) > 1:
        return None
    steps = (lefts[0], rights[0]) if lengths else (0, 0)
    shape = MatmulShape(
        lengths[0] if lengths else 1, m, n, k, (row, column), matmul.right.strides, *steps
    )
    is_said = stored_transposed(m, k, shape.a_strides) and stored_transposed(k, n, shape.b_strides)
    return shape if is_said else None


def should_turn(shape: MatmulShape, item_bytes: int) -> bool:
    """True if a constant second matrix is better stored column by column.

    That is, if its rows cannot be loaded in vectors and its columns can.
    """
    is_row_major = shape.b_strides == (shape.n, 1) and shape.batch == 1
    has_odd_rows = shape.n * item_bytes % _VECTOR_BYTES != 0
    return is_row_major and has_odd_rows and shape.k * item_bytes % _VECTOR_BYTES == 0


def fit_steps(
    steps: Sequence[FusedStep], rows: Collection[str], maps: Collection[str]
) -> FittedSteps:
    """Divide steps into what cuBLASLt computes and the rest.

    ``rows`` are operands with a number for each column, ``maps`` those that lie like the result.
    """
    bias: str | None = None
    residual: str | None = None
    current = "acc"
    for index, step in enumerate(steps):
        uses = sum(later.operands.count(current) for later in steps[index:])
        if current not in step.operands or uses != 1:
            return FittedSteps(bias, residual, None, steps_behind(steps, index, current))
        activation = None if residual else _activation(step)
        other = _added(step, current)
        if activation is not None:
            rest = steps_behind(steps, index + 1, f"s{index}")
            return FittedSteps(bias, residual, activation, rest)
        if bias is None and other in rows:
            bias = other
        elif residual is None and other in maps:
            residual = other
        else:
            return FittedSteps(bias, residual, None, steps_behind(steps, index, current))
        current = f"s{index}"
    return FittedSteps(bias, residual)


def _activation(step: FusedStep) -> str | None:
    """Name the activation that a step is; the GELU of erf is another than the library's."""
    if step.op == "Relu":
        return "relu"
    return "gelu_tanh" if step.op == "Gelu" and step.numbers == (1.0,) else None


def _added(step: FusedStep, current: str) -> str | None:
    """Return what a step adds to the current value, if it adds one thing."""
    if step.op not in ("Add", "Sum") or len(step.operands) != 2:
        return None
    left, right = step.operands
    return right if left == current else left
