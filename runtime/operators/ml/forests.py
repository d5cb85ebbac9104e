"""Trees as arrays in which every node asks the same, whether a feature is at most a threshold.

Theory of operation. Each of ONNX's comparisons is written as one or two such questions, where
``before(t)`` is the next smaller number and NaN is at most nothing::

    x <  t   is  x <= before(t)
    x >= t   is  x <= before(t), its children swapped;   x > t  is  x <= t, swapped
    x == t   is  x <= t, and then not x <= before(t);    x != t is that, swapped

Nothing is at least, or more than, a threshold that is NaN, so such a question is asked as ``<=``.

A leaf is its own child, so a walk needs no branch: all rows go down all trees at once, a level at
a time, until nothing moves. A missing value, NaN, goes where its node says, and differs from all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..plain_operators import Array

__all__ = ["LEAF", "Forest", "Question", "check_trees", "make_forest"]

LEAF = "LEAF"
_ROWS_AT_ONCE = 1 << 17
"""Rows times trees of one part of a walk: its arrays lie in a core's cache."""


class Question(NamedTuple):
    """The nodes of all trees, leaves among them, by their places in the file.

    ``modes`` are names such as ``LEQ``; what follows for a leaf has no meaning. ``yes`` and ``no``
    are places of nodes, ``missing`` says where NaN goes as ``yes`` does.
    """

    features: Array
    modes: Sequence[str]
    values: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array


class Forest(NamedTuple):
    """What ``make_forest`` makes; immutable, for any number of threads.

    ``leaves`` are, for each node, the place in the file of the leaf that it is, or -1.
    """

    features: Array
    thresholds: Array
    children: Array
    missing: Array
    leaves: Array
    roots: Array

    def find_leaves(self, x: Array) -> Array:
        """Return (rows, trees): which leaf of the file each row of (rows, features) comes to.

        Raises IndexError for a node that asks for a feature that the rows do not have.
        """
        if len(self.features) and int(self.features.max()) >= x.shape[1]:
            raise IndexError(f"a node asks for feature {self.features.max()} of {x.shape[1]}")
        found = np.empty((len(x), len(self.roots)), np.intp)
        step = max(1, _ROWS_AT_ONCE // max(1, len(self.roots)))
        for start in range(0, len(x), step):
            part = x[start : start + step]
            found[start : start + step] = self.leaves[self._walk(part)]
        return found

    def _walk(self, x: Array) -> Array:
        flat = np.ascontiguousarray(x).reshape(-1)
        has_missing = bool(np.isnan(flat).any())
        first = np.arange(len(x))[:, None] * x.shape[1]
        at = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        while True:
            values = flat[first + self.features[at]]
            goes = values <= self.thresholds[at]
            if has_missing:
                goes |= np.isnan(values) & self.missing[at]
            following = self.children[2 * at + goes]
            if np.array_equal(following, at):
                return at
            at = following


def make_forest(question: Question, dtype: np.dtype[np.floating]) -> Forest:
    """Write trees as questions of one kind, with thresholds of this type.

    They have been through ``check_trees``, apart from nodes that are questions in a row.
    """
    modes = np.array(list(question.modes), object)
    is_leaf = modes == LEAF
    count = len(modes)
    values = question.values.astype(dtype)
    below = np.where(np.isneginf(values), np.nan, np.nextafter(values, dtype.type(-np.inf)))
    below = below.astype(dtype)
    modes[np.isnan(values) & np.isin(modes, ("GTE", "GT"))] = "LEQ"
    is_pair = np.isin(modes, ("EQ", "NEQ"))
    second = count + np.cumsum(is_pair) - 1
    thresholds = np.where(np.isin(modes, ("LT", "GTE")), below, values)
    is_swapped = np.isin(modes, ("GTE", "GT", "NEQ"))
    yes = np.where(is_swapped, question.no, question.yes)
    no = np.where(is_swapped, question.yes, question.no)
    missing = np.where(is_swapped, ~question.missing, question.missing) & (modes != "NEQ")
    places = np.arange(count)
    children = np.empty((count + int(is_pair.sum()), 2), np.intp)
    children[:count, 0] = np.where(is_leaf, places, no)
    children[:count, 1] = np.where(is_leaf, places, np.where(is_pair, second, yes))
    children[count:, 0], children[count:, 1] = yes[is_pair], no[is_pair]
    features = np.where(is_leaf, 0, question.features)
    return Forest(
        np.concatenate([features, features[is_pair]]).astype(np.intp),
        np.concatenate([thresholds, below[is_pair]]),
        children.reshape(-1),
        np.concatenate([missing & ~is_leaf, np.zeros(int(is_pair.sum()), bool)]),
        np.concatenate([np.where(is_leaf, places, -1), np.full(int(is_pair.sum()), -1)]),
        question.roots,
    )


def check_trees(question: Question) -> None:
    """Raise ValueError for what is not there, and for a walk without an end.

    Nodes may have several parents: a set of categories is written as a row of questions that all
    lead to one node.
    """
    is_inner = np.array([mode != LEAF for mode in question.modes], bool)
    count = len(is_inner)
    below = np.concatenate([question.yes[is_inner], question.no[is_inner]])
    if below.size and not 0 <= int(below.min()) <= int(below.max()) < count:
        raise ValueError("a node of a tree has a child that is not there")
    roots = question.roots
    if len(roots) and not 0 <= int(roots.min()) <= int(roots.max()) < count:
        raise ValueError("a tree has a root that is not there")
    parents = np.bincount(below, minlength=count)
    has_one_way = not (parents[is_inner] > 1).any() and not (parents[roots] > 0).any()
    if not has_one_way and _leads_back(question, is_inner, parents):
        raise ValueError("a tree leads back to one of its nodes")
    if is_inner.any() and int(question.features[is_inner].min()) < 0:
        raise ValueError("a node of a tree asks for a feature below zero")


def _leads_back(question: Question, is_inner: Array, parents: Array) -> bool:
    """True if nodes are left when those without parents are taken away, again and again.

    ``parents`` counts those of each node, and is overwritten.
    """
    left = int(is_inner.sum())
    nodes = np.flatnonzero(is_inner & (parents == 0))
    while len(nodes):
        left -= len(nodes)
        below = np.concatenate([question.yes[nodes], question.no[nodes]])
        np.subtract.at(parents, below, 1)
        nodes = np.unique(below[is_inner[below] & (parents[below] == 0)])
    return left > 0
