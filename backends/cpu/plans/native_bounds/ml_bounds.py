"""Ensembles of trees, and votes of support vectors (native_trees.c, native_vectors.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .reach import FLOAT32, FLOAT64, INDEX_TYPES, INT32, UINT8, Reach, Rule, product, take

__all__ = ["RULES"]

_MOST_TREE_NUMBERS, _SECOND = 1 << 30, 2
_MOST_CLASSES = 1 << 16


def _tree_ensemble(parameters: Sequence[int]) -> list[Reach]:
    rows, features, nodes, trees, leaves, entries, targets, *words, labels = take(parameters, 14)
    verdict = words[2]
    known = range(4), range(5), range(5), range(max(0, targets)), range(2), range(2)
    if not all(word in each for word, each in zip(words, known, strict=True)):
        raise ValueError(f"trees with the words {words} for {targets} targets")
    if not 1 <= features < _MOST_TREE_NUMBERS or not 1 <= nodes <= _MOST_TREE_NUMBERS:
        raise ValueError(f"trees of {nodes} nodes that ask for {features} features")
    if nodes & (nodes - 1) or max(entries, leaves) > _MOST_TREE_NUMBERS:
        raise ValueError(f"trees of {nodes} nodes, {leaves} leaves and {entries} entries")
    if labels < (0, targets, 2, 2, 0)[verdict] or (verdict == _SECOND and targets != 2):
        raise ValueError(f"{labels} labels for {targets} targets by verdict {verdict}")
    made: list[Reach] = [(0, product(rows, 8), INDEX_TYPES[8])] if verdict else []
    return [
        (0, product(rows, features, 4), FLOAT32),
        (0, product(nodes, 16), INT32),
        (0, product(trees, 8), INT32),
        (0, product(leaves + 1, 4), INT32),
        (0, product(entries, 4), INT32),
        (0, product(entries, 4), FLOAT32),
        (0, product(targets, 8), FLOAT64),
        (0, product(labels, 8), INDEX_TYPES[8]),
        (0, product(rows, targets, 8), FLOAT64),
        (0, product(rows, targets), UINT8),
        *made,
        (0, product(rows, targets, 4), FLOAT32),
    ]


def _vote_by_pairs(parameters: Sequence[int]) -> list[Reach]:
    rows, vectors, classes, has_odds = take(parameters, 4)
    if not 2 <= classes < _MOST_CLASSES or has_odds not in (0, 1):
        raise ValueError(f"votes of {classes} classes")
    pairs = classes * (classes - 1) // 2
    width = classes if has_odds or classes == 2 else pairs
    odds: list[Reach] = [(0, 8 * pairs, FLOAT32)] * has_odds
    return [
        (0, product(rows, vectors, 4), FLOAT32),
        (0, product(classes - 1, vectors, 4), FLOAT32),
        (0, 4 * classes, INT32),
        (0, 4 * pairs, FLOAT32),
        *odds,
        (0, 8 * classes, INDEX_TYPES[8]),
        (0, 8 * (pairs + classes * (classes + 2)), FLOAT64),
        (0, product(rows, 8), INDEX_TYPES[8]),
        (0, product(rows, width, 4), FLOAT32),
    ]


RULES: Mapping[str, Rule] = {
    "tree_ensemble": _tree_ensemble,
    "vote_by_pairs": _vote_by_pairs,
}
