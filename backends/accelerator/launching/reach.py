"""What a launch touches of its operands, by the numbers that its kernel is given. Pure.

The last look before a launch is put into a plan, which trusts no type rule and no kernel: the
launch says how far each operand is read or written, and one that reaches out of an operand is
refused. A lowering may be misled by shapes that contradict each other; the numbers are what is
run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....runtime.graph import DType
from ..operand import Operand

__all__ = ["INT_LIMIT", "Reach", "box", "elements", "find_overrun", "whole"]

INT_LIMIT = 2**31
"""Kernels count elements in C's int."""


@dataclass(frozen=True)
class Reach:
    """Elements ``low`` to ``high``, counted from where the operand begins, of ``item_bytes`` each.

    Nothing is touched where both are 0.
    """

    low: int
    high: int
    item_bytes: int


def elements(count: int, dtype: DType) -> Reach:
    """Touch the first ``count`` elements."""
    return Reach(0, count, dtype.item_bytes)


def whole(operand: Operand) -> Reach:
    """Touch what an operand has, for what takes its length from the operand itself."""
    return elements(operand.count, operand.dtype)


def box(lengths: Sequence[int], strides: Sequence[int], dtype: DType, first: int = 0) -> Reach:
    """Touch a box from element ``first`` on, at strides that may be negative or 0."""
    if 0 in lengths:
        return elements(0, dtype)
    steps = [(n - 1) * stride for n, stride in zip(lengths, strides, strict=True)]
    low = first + sum(step for step in steps if step < 0)
    high = first + sum(step for step in steps if step > 0) + 1
    return Reach(low, high, dtype.item_bytes)


def find_overrun(operand: Operand, reach: Reach) -> str | None:
    """Return how a launch leaves an operand, or the operand its buffer, or a count C's int."""
    own, buffer = operand.size_bytes, operand.buffer
    if min(operand.shape, default=0) < 0 or math.prod(operand.shape) >= INT_LIMIT:
        return f"an operand of {list(operand.shape)} is more than its kernels can count"
    if operand.offset_bytes < 0 or operand.offset_bytes + own > buffer.size_bytes:
        return (
            f"an operand of {own} bytes begins {operand.offset_bytes} bytes behind the start of a "
            f"buffer of {buffer.size_bytes}"
        )
    if not 0 <= reach.low <= reach.high < INT_LIMIT or reach.high * reach.item_bytes > own:
        return (
            f"elements {reach.low} to {reach.high} of {reach.item_bytes} bytes are more than an "
            f"operand of {operand.dtype.label}{list(operand.shape)} has"
        )
    return None
