"""How far native kernels reach into their operands, and the checks that rules share. Pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence

from .....runtime.graph import DType

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "INDEX_TYPES",
    "INT8",
    "INT32",
    "INTEGER_NUMBERS",
    "MOST_BYTES",
    "MOST_PARTS",
    "NO_TYPES",
    "UINT8",
    "UINT16",
    "Reach",
    "Rule",
    "checked_item",
    "checked_rank",
    "element_type",
    "product",
    "row_type",
    "strided",
    "take",
]

Reach = tuple[int, int, Collection[DType]]
"""The first byte that is touched and the one after the last, counted from where the operand begins,
and the element types that the kernel takes it for; none if it only moves bytes."""

Rule = Callable[[Sequence[int]], list[Reach]]
"""Gives the reach of each operand; ValueError for parameters that the kernel does not take."""

MOST_BYTES = 1 << 48
"""No buffer has as many; products of lengths below it do not overflow in C."""
MOST_PARTS = 1 << 12
"""Far more than threads; a kernel begins each of them, also those of no columns."""
_MAX_RANK = 24
NO_TYPES: frozenset[DType] = frozenset()
FLOAT32 = frozenset({DType.FLOAT32})
FLOAT64 = frozenset({DType.FLOAT64})
INT8 = frozenset({DType.INT8})
INT32 = frozenset({DType.INT32})
UINT8 = frozenset({DType.UINT8})
UINT16 = frozenset({DType.UINT16})
_ROW_TYPES = (FLOAT32, frozenset({DType.BFLOAT16}))
INDEX_TYPES = {4: INT32, 8: frozenset({DType.INT64})}
_INTEGER_TYPES = frozenset(
    {
        DType.BOOL,
        DType.UINT8,
        DType.INT8,
        DType.UINT16,
        DType.INT16,
        DType.UINT32,
        DType.INT32,
        DType.INT64,
    }
)
_TYPES = _INTEGER_TYPES | {DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64}
_NUMBERS = frozenset(dtype.value for dtype in _TYPES)
INTEGER_NUMBERS = frozenset(dtype.value for dtype in _INTEGER_TYPES)


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


def strided(lengths: Sequence[int], strides: Sequence[int], item: int) -> tuple[int, int]:
    """Return the reach of elements of ``item`` bytes at these strides, which may be negative."""
    low, high = 0, item
    for length, stride in zip(lengths, strides, strict=True):
        if stride > 0:
            high += (length - 1) * stride
        else:
            low += (length - 1) * stride
    return (low, high) if 0 not in lengths else (0, 0)


def checked_item(number: int) -> int:
    """Return the bytes of an element, which there can be."""
    if number not in (1, 2, 4, 8):
        raise ValueError(f"elements have 1, 2, 4 or 8 bytes, not {number}")
    return number


@functools.cache
def element_type(number: int) -> tuple[int, Collection[DType]]:
    """Return the bytes of an element of this type, and the type."""
    if number not in _NUMBERS:
        raise ValueError(f"elements of type {number} are not known")
    dtype = DType(number)
    return dtype.item_bytes, frozenset({dtype})


def row_type(number: int) -> tuple[int, Collection[DType]]:
    """Return the bytes of an element of rows, and the type."""
    if number not in (0, 1):
        raise ValueError(f"rows are of type 0 or 1, not {number}")
    return (4, 2)[number], _ROW_TYPES[number]


def checked_rank(number: int, least: int) -> int:
    """Return a number of axes that there can be."""
    if not least <= number <= _MAX_RANK:
        raise ValueError(f"there are {number} axes, and may be {least} to {_MAX_RANK}")
    return number
