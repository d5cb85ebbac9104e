"""How far native kernels reach into their operands, and the checks that rules share. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ....runtime.graph import DType

__all__ = [
    "FLOAT32",
    "INT8",
    "INT32",
    "MOST_BYTES",
    "MOST_PARTS",
    "UINT8",
    "Reach",
    "product",
    "take",
]

Reach = tuple[int, int, Collection[DType]]
"""The first byte that is touched and the one after the last, counted from where the operand begins,
and the element types that the kernel takes it for; none if it only moves bytes."""

MOST_BYTES = 1 << 48
"""No buffer has as many; products of lengths below it do not overflow in C."""
MOST_PARTS = 1 << 12
"""Far more than threads; a kernel begins each of them, also those of no columns."""

FLOAT32 = frozenset({DType.FLOAT32})
INT32 = frozenset({DType.INT32})
INT8 = frozenset({DType.INT8})
UINT8 = frozenset({DType.UINT8})


def take(parameters: Sequence[int], count: int) -> Sequence[int]:
    """Return as many parameters as there have to be; ValueError for others."""
    if len(parameters) != count:
        raise ValueError(f"there are {len(parameters)} parameters, and {count} are needed")
    return parameters


def product(*lengths: int) -> int:
    """Multiply lengths, of which none is negative; a product that no memory has is refused."""
    if any(length < 0 for length in lengths):
        raise ValueError(f"a length is negative in {list(lengths)}")
    found = math.prod(lengths)
    if found >= MOST_BYTES:
        raise ValueError(f"{list(lengths)} is more than there can be")
    return found
