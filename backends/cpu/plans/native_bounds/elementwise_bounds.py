"""Fused elementwise operators and Where (native_elementwise.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..elementwise_parameters import FLOAT_STEPS, INTEGER_STEPS
from .reach import (
    INTEGER_NUMBERS,
    NO_TYPES,
    Reach,
    Rule,
    checked_item,
    checked_rank,
    element_type,
    product,
    strided,
    take,
)

__all__ = ["FIRST_BINARY", "RULES", "STEP_COUNTS"]

_MAX_OPERANDS = 32
FIRST_BINARY = {
    "float_elementwise": FLOAT_STEPS.index("add"),
    "integer_elementwise": INTEGER_STEPS.index("add"),
}
STEP_COUNTS = {"float_elementwise": len(FLOAT_STEPS), "integer_elementwise": len(INTEGER_STEPS)}


def _elementwise(kernel: str, parameters: Sequence[int]) -> list[Reach]:
    count, rank, steps, *words = parameters
    if not 2 <= count <= _MAX_OPERANDS:
        raise ValueError(f"a fused group of {count} operands")
    checked_rank(rank, 2)
    take(words, rank + count * (1 + rank) + 4 * product(steps))
    lengths = words[:rank]
    product(8, *lengths)
    first, most = FIRST_BINARY[kernel], STEP_COUNTS[kernel]
    behind = rank + count * (1 + rank)
    for start in range(behind, len(words), 4):
        number, operand = words[start], words[start + 1]
        if not 0 <= number < most or not 0 <= operand < count - 1 or (number >= first) > operand:
            raise ValueError(f"step {number} on operand {operand}")
    found: list[Reach] = []
    for start in range(rank, behind, 1 + rank):
        is_read_whole = kernel == "integer_elementwise" and start + 1 + rank < behind
        if is_read_whole and words[start] not in INTEGER_NUMBERS:
            raise ValueError(f"whole numbers of type {words[start]}")
        item, dtypes = element_type(words[start])
        strides = words[start + 1 : start + 1 + rank]
        found.append((*strided(lengths, strides, item), dtypes))
    return found


def _where(parameters: Sequence[int]) -> list[Reach]:
    item, rank, *words = parameters
    checked_item(item)
    take(words, 5 * checked_rank(rank, 1))
    lengths, strides = words[:rank], words[rank:]
    product(item, *lengths)
    return [
        (*strided(lengths, strides[index::4], item if index else 1), NO_TYPES) for index in range(4)
    ]


RULES: Mapping[str, Rule] = {
    "float_elementwise": lambda parameters: _elementwise("float_elementwise", parameters),
    "integer_elementwise": lambda parameters: _elementwise("integer_elementwise", parameters),
    "where": _where,
}
