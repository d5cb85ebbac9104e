"""Matmuls of float32, and distances of all pairs of rows (native_matmul.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .reach import FLOAT32, MOST_PARTS, Reach, Rule, product, strided, take

__all__ = ["RULES"]


def _small_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, has_bias, _ = take(parameters, 5)
    sizes = [product(rows, inner, 4), product(inner, columns, 4)]
    if has_bias:
        sizes.append(product(columns, 4))
    return [(0, size, FLOAT32) for size in (*sizes, product(rows, columns, 4))]


def _pair_distances(parameters: Sequence[int]) -> list[Reach]:
    kind, rows, others, length = take(parameters, 4)
    if kind not in (0, 1, 2):
        raise ValueError(f"there is no distance {kind}")
    product(rows, others, length, 4)
    sizes = (rows * length, others * length, rows * others)
    return [(0, product(size, 4), FLOAT32) for size in sizes]


def _thin_matmul(parameters: Sequence[int]) -> list[Reach]:
    is_standing, parts, *lengths = take(parameters, 17)[:7]
    outer, pairs, rows, inner, columns = lengths
    strides = [4 * stride for stride in parameters[7:16]]
    if is_standing not in (0, 1) or not 1 <= parts <= MOST_PARTS or inner < 1:
        raise ValueError(f"a matmul in {parts} parts of rows of {inner}")
    product(*lengths, 4)
    product(parts, outer, pairs)
    product(parts, columns)
    left = strided((outer, pairs, rows, inner), (*strides[:3], 4), 4)
    pieces = (4, strides[5]) if is_standing else (strides[5], 4)
    right = strided((outer, pairs, inner, columns), (*strides[3:5], *pieces), 4)
    target = strided((outer, pairs, rows, columns), (*strides[6:], 4), 4)
    return [(*reach, FLOAT32) for reach in (left, right, target)]


RULES: Mapping[str, Rule] = {
    "pair_distances": _pair_distances,
    "small_matmul": _small_matmul,
    "thin_matmul": _thin_matmul,
}
