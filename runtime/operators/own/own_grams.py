"""Counts of n-grams; onnx.reference takes them in loops as long as an attribute says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["gram_vectorizer"]

_Places = Mapping[tuple[Any, ...], int]
"""Which one of the pool an n-gram is."""


@own("TfIdfVectorizer", since=9, prepares=True)
def gram_vectorizer(
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Callable[[Array], Array]:
    """Return what counts the n-grams of a pool in each row of (N, C), or in the one of (C,).

    It gives float32 of shape (N, columns) or (columns,). The items of an n-gram are equally far
    apart, with at most ``max_skip_count`` others between two. Mode IDF tells only whether there
    are any; IDF and TFIDF multiply each n-gram of the pool with its weight. ``ngram_indexes`` are
    the columns of the pool's n-grams. Raises ValueError for attributes that contradict each other.
    """
    pool = [*pool_int64s, *pool_strings]
    grams = list(_grams(pool, ngram_counts))
    if len(grams) != len(ngram_indexes):
        raise ValueError(f"{len(ngram_indexes)} ngram_indexes for a pool of {len(grams)} n-grams")
    if any(column < 0 for column in ngram_indexes):
        raise ValueError(f"ngram_indexes has {min(ngram_indexes)}, which is no column")
    if not 1 <= min_gram_length <= max_gram_length or max_skip_count < 0:
        raise ValueError(
            f"n-grams of {min_gram_length} to {max_gram_length} items, of which "
            f"{max_skip_count} are skipped, cannot be counted"
        )
    columns, width = np.array(ngram_indexes, np.int64), max(ngram_indexes, default=-1) + 1
    scales = np.array(weights, np.float32) if len(weights) and mode != "TF" else None
    if scales is not None and len(scales) != len(grams):
        raise ValueError(f"{len(scales)} weights for a pool of {len(grams)} n-grams")
    by_length: dict[int, dict[tuple[Any, ...], int]] = {}
    for place, gram in enumerate(grams):
        if min_gram_length <= len(gram) <= max_gram_length:
            by_length.setdefault(len(gram), {})[gram] = place

    def vectorize(x: Array) -> Array:
        if x.ndim not in (1, 2):
            raise ValueError(f"x of shape {x.shape} is neither a row nor rows")
        rows = x if x.ndim == 2 else x[None]
        made = np.zeros((len(rows), width), np.float32)
        for row, counted in zip(rows.tolist(), made, strict=True):
            counts = np.zeros(len(grams), np.float32)
            for length, places in by_length.items():
                _count(row, length, places, max_skip_count, counts)
            if mode == "IDF":
                np.minimum(counts, 1, out=counts)
            np.add.at(counted, columns, counts if scales is None else counts * scales)
        return made if x.ndim == 2 else made[0]

    return vectorize


def _grams(pool: Sequence[Any], starts: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the n-grams of a pool, whose part ``i`` holds those of ``i + 1`` items."""
    for length, (start, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        if not 0 <= start <= end or (end - start) % length:
            raise ValueError(
                f"ngram_counts is {list(starts)}: the {length}-grams from {start} to {end} of a "
                f"pool of {len(pool)} items are no whole number of them"
            )
        for first in range(start, end, length):
            yield tuple(pool[first : first + length])


def _count(
    row: list[Any], length: int, places: _Places, max_skip_count: int, counts: Array
) -> None:
    """Add to its count each n-gram of a row, at each distance of its items that fits the row."""
    furthest = min(max_skip_count + 1, (len(row) - 1) // (length - 1)) if length > 1 else 1
    for distance in range(1, furthest + 1):
        for gram in zip(*(row[at * distance :] for at in range(length)), strict=False):
            place = places.get(gram)
            if place is not None:
                counts[place] += 1
