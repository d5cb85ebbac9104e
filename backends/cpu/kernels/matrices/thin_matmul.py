"""Matmuls of few rows with many matrices, as one new token's with all keys and values.

Each element of the matrices is used once or a few times, so the matmul takes as long as reading
them does. oneDNN's kernels are made for many rows, and copy turned matrices. The native kernel
reads them as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .....runtime.graph import DType
from ...native.step_runner import double_bits
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder

__all__ = ["MOST_ROWS", "ThinMatmul", "emit_thin_matmul", "thin_matmul"]

MOST_ROWS = 4
"""From here on oneDNN is faster: what it copies is used more often."""
FEWEST_TOGETHER = 16
"""Elements in one piece: of fewer no vectors can be made."""
ELEMENTS_PER_THREAD = 1 << 15
"""What one thread reads in some ten microseconds, which waking another one is worth."""


class _Axis(NamedTuple):
    """An axis of all three operands: a length, and strides in elements."""

    length: int
    left: int
    right: int
    target: int


_ONE = _Axis(1, 0, 0, 0)


class ThinMatmul(NamedTuple):
    """How the native kernel walks through a matmul."""

    is_standing: bool
    outer: _Axis
    pairs: _Axis
    rows: _Axis
    inner: int
    columns: int
    step: int
    """From one piece of a matrix, a column or a row, to the next."""

    def parameters(self, parts: int, factor: float) -> tuple[int, ...]:
        """List the words of the native kernel, which computes in ``parts`` parts."""
        return (
            self.is_standing,
            parts,
            self.outer.length,
            self.pairs.length,
            self.rows.length,
            self.inner,
            self.columns,
            *(self.outer.left, self.pairs.left, self.rows.left),
            *(self.outer.right, self.pairs.right, self.step),
            *(self.outer.target, self.pairs.target, self.rows.target),
            double_bits(factor),
        )


def thin_matmul(left: Layout, right: Layout, target: Layout) -> ThinMatmul | None:
    """Return how the native kernel multiplies batches of matrices; None if oneDNN is to do it.

    All have the same rank, and axes of length 1 are broadcast. Pure.
    """
    layouts = (left, right, target)
    if any(item.dtype is not DType.FLOAT32 or item.strides is None for item in layouts):
        return None
    batch, rows = _axes(layouts)
    if batch is None or rows.length > MOST_ROWS:
        return None
    inner, columns = right.shape[-2:]
    down, across = _steps(right)
    if (_steps(left)[1] != 1 and inner != 1) or (_steps(target)[1] != 1 and columns != 1):
        return None
    is_standing = down == 1
    if not is_standing and across != 1:
        return None
    if (inner if is_standing else columns) < FEWEST_TOGETHER:
        return None
    step = across if is_standing else down
    outer, pairs = batch
    return ThinMatmul(is_standing, outer, pairs, rows, inner, columns, step)


def emit_thin_matmul(
    builder: PlanBuilder,
    matmul: ThinMatmul,
    operands: tuple[Operand, Operand, Operand],
    factor: float = 1.0,
) -> None:
    """Emit it for left, right and target; each result is multiplied by the factor."""
    matrices = matmul.outer.length * matmul.pairs.length
    elements = matrices * matmul.inner * matmul.columns
    is_worth_it = builder.thread_count > 1 and elements >= 2 * ELEMENTS_PER_THREAD
    parts = builder.thread_count if is_worth_it else 1
    builder.native("thin_matmul", operands, matmul.parameters(parts, factor))


def _axes(layouts: Sequence[Layout]) -> tuple[tuple[_Axis, _Axis] | None, _Axis]:
    """Return the axes of matrices and the one of rows, which all share a matrix.

    None for the first where there are more than two and one.
    """
    batch: list[_Axis] = []
    rows: list[_Axis] = []
    lengths = layouts[2].shape[:-1]
    for place, length in enumerate(lengths):
        if length == 1:
            continue
        left, right, target = (_step(item, place) for item in layouts)
        axis = _Axis(length, left, 0 if place == len(lengths) - 1 else right, target)
        (batch if axis.right else rows).append(axis)
    if len(batch) > 2 or len(rows) > 1:
        return None, _ONE
    whole = [*[_ONE] * (2 - len(batch)), *batch]
    return (whole[0], whole[1]), rows[0] if rows else _ONE


def _step(layout: Layout, axis: int) -> int:
    """Return the stride of an axis; 0 where it is broadcast."""
    assert layout.strides is not None
    return 0 if layout.shape[axis] == 1 else layout.strides[axis]


def _steps(layout: Layout) -> tuple[int, int]:
    """Return the strides down and across a matrix."""
    assert layout.strides is not None
    down, across = layout.strides[-2:]
    return down, across
