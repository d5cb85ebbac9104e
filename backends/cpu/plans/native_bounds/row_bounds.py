"""Rows and axes: reductions, positions, normalisation (native_reductions.c, native_rows.c, ...)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .reach import (
    FLOAT32,
    INDEX_TYPES,
    INT8,
    UINT8,
    Reach,
    Rule,
    checked_rank,
    element_type,
    product,
    row_type,
    strided,
    take,
)

__all__ = ["RULES"]

_REDUCTION_COUNT = 10
_BYTES = UINT8 | INT8


def _reduce(parameters: Sequence[int]) -> list[Reach]:
    kind, source, result, kept_count, reduced_count, length, from_step, to_step, *words = parameters
    if not 0 <= kind < _REDUCTION_COUNT:
        raise ValueError(f"there is no reduction {kind}")
    behind = 3 * checked_rank(kept_count, 0)
    take(words, behind + 2 * checked_rank(reduced_count, 0))
    kept, reduced = words[:behind], words[behind:]
    kept_lengths, reduced_lengths = kept[0::3], reduced[0::2]
    product(8, length, *kept_lengths, *reduced_lengths)
    read_item, read_types = element_type(source)
    made_item, made_types = element_type(result)
    lengths = (length, *kept_lengths, *reduced_lengths)
    read = strided(lengths, (from_step, *kept[1::3], *reduced[1::2]), read_item)
    # Where the inner axis is reduced there is one result, even of no elements.
    is_kept = length if to_step else 1
    made = strided((is_kept, *kept_lengths), (to_step, *kept[2::3]), made_item)
    return [(*read, read_types), (*made, made_types)]


def _find_extremes(parameters: Sequence[int]) -> list[Reach]:
    outer, length, inner, *_ = take(parameters, 5)
    if length < 1:
        raise ValueError(f"an extreme of {length} elements")
    made = product(outer, inner, 8)
    return [(0, product(outer, length, inner, 4), FLOAT32), (0, made, INDEX_TYPES[8])]


def _select_top(parameters: Sequence[int]) -> list[Reach]:
    outer, length, inner, count, _ = take(parameters, 5)
    if not 1 <= count <= length:
        raise ValueError(f"{count} of {length} elements are kept")
    return [
        (0, product(outer, length, inner, 4), FLOAT32),
        (0, product(outer, count, inner, 4), FLOAT32),
        (0, product(outer, count, inner, 8), INDEX_TYPES[8]),
    ]


def _softmax(parameters: Sequence[int]) -> list[Reach]:
    element, outer, length, inner, _ = take(parameters, 5)
    item, dtypes = row_type(element)
    size = product(outer, length, inner, item)
    return [(0, size, dtypes), (0, size, dtypes)]


def _attention_probabilities(parameters: Sequence[int]) -> list[Reach]:
    element, batch, heads, rows, length, _, has_mask, *strides, _ = take(parameters, 11)
    item, dtypes = row_type(element)
    count = product(batch, heads, rows, length)
    found: list[Reach] = [(0, product(count, 4), FLOAT32), (0, product(count, item), dtypes)]
    if has_mask:
        taken = [4 * stride for stride in (*strides, 1)]
        found.append((*strided((batch, heads, rows, length), taken, 4), FLOAT32))
    return found


def _rms_norm(parameters: Sequence[int]) -> list[Reach]:
    element, rows, length, _ = take(parameters, 4)
    item, dtypes = row_type(element)
    size = product(rows, length, item)
    return [(0, size, dtypes), (0, product(length, 4), FLOAT32), (0, size, dtypes)]


def _layer_norm(parameters: Sequence[int]) -> list[Reach]:
    element, rows, length, _, has_shifts, kept = take(parameters, 6)
    if has_shifts not in (0, 1) or kept not in (0, 1, 2):
        raise ValueError(f"rows with {has_shifts} shifts and {kept} statistics")
    item, dtypes = row_type(element)
    size = product(rows, length, item)
    factors: list[Reach] = [(0, product(length, 4), FLOAT32)] * (1 + has_shifts)
    statistics: list[Reach] = [(0, product(rows, 4), FLOAT32)] * kept
    return [(0, size, dtypes), *factors, (0, size, dtypes), *statistics]


def _dynamic_quantize(parameters: Sequence[int]) -> list[Reach]:
    (count,) = take(parameters, 1)
    return [
        (0, product(count, 4), FLOAT32),
        (0, product(count), UINT8),
        (0, 4, FLOAT32),
        (0, 1, UINT8),
    ]


def _look_up(parameters: Sequence[int]) -> list[Reach]:
    (count,) = take(parameters, 1)
    return [(0, product(count), _BYTES), (0, 256, _BYTES), (0, count, _BYTES)]


def _turn_pairs(parameters: Sequence[int]) -> list[Reach]:
    sequences, heads, places, size, half, _, _, has_positions, rows = take(parameters, 9)
    if 2 * half > size or (not has_positions and rows != product(sequences, places)):
        raise ValueError(f"{half} pairs in heads of {size}, and {rows} rows of angles")
    values = (0, product(sequences, heads, places, size, 4), FLOAT32)
    tables = [(0, product(rows, half, 4), FLOAT32)] * 2
    positions = [(0, product(sequences, places, 8), INDEX_TYPES[8])] * bool(has_positions)
    return [values, *tables, *positions, values]


RULES: Mapping[str, Rule] = {
    "attention_probabilities": _attention_probabilities,
    "dynamic_quantize": _dynamic_quantize,
    "find_extremes": _find_extremes,
    "layer_norm": _layer_norm,
    "look_up": _look_up,
    "reduce": _reduce,
    "rms_norm": _rms_norm,
    "select_top": _select_top,
    "softmax": _softmax,
    "turn_pairs": _turn_pairs,
}
