"""What is moved, and sampled at places that are known (native_movement.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .reach import (
    FLOAT32,
    INDEX_TYPES,
    INT32,
    NO_TYPES,
    Reach,
    Rule,
    checked_item,
    product,
    strided,
    take,
)

__all__ = ["RULES"]


def _copy(parameters: Sequence[int]) -> list[Reach]:
    item, rank, *axes = parameters
    checked_item(item)
    take(axes, 3 * rank)
    lengths = axes[0::3]
    product(item, *lengths)
    source, target = axes[1::3], axes[2::3]
    return [
        (*strided(lengths, source, item), NO_TYPES),
        (*strided(lengths, target, item), NO_TYPES),
    ]


def _fill(parameters: Sequence[int]) -> list[Reach]:
    item, count, _ = take(parameters, 3)
    return [(0, product(checked_item(item), count), NO_TYPES)]


def _gather(parameters: Sequence[int]) -> list[Reach]:
    outer, length, count, part, index = take(parameters, 5)
    if index not in INDEX_TYPES:
        raise ValueError(f"indices have 4 or 8 bytes, not {index}")
    return [
        (0, product(outer, length, part), NO_TYPES),
        (0, product(count, index), INDEX_TYPES[index]),
        (0, product(outer, count, part), NO_TYPES),
    ]


def _sample_grid(parameters: Sequence[int]) -> list[Reach]:
    outer, in_rows, in_columns, rows, columns, part = take(parameters, 6)
    return [
        (0, product(outer, in_rows, in_columns, part), NO_TYPES),
        (0, product(rows, 4), INT32),
        (0, product(columns, 4), INT32),
        (0, product(outer, rows, columns, part), NO_TYPES),
    ]


def _resample(parameters: Sequence[int]) -> list[Reach]:
    outer, length, count, inner, taps = take(parameters, 5)
    return [
        (0, product(outer, length, inner, 4), FLOAT32),
        (0, product(count, taps, 4), INT32),
        (0, product(count, taps, 4), FLOAT32),
        (0, product(count, 4), FLOAT32),
        (0, product(outer, count, inner, 4), FLOAT32),
    ]


RULES: Mapping[str, Rule] = {
    "copy": _copy,
    "fill": _fill,
    "gather": _gather,
    "resample": _resample,
    "sample_grid": _sample_grid,
}
