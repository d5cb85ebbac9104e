"""Ensembles of trees, in the old and the new form: sums over what their leaves say."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array
from .forests import Forest, make_forest
from .ml_scores import transformed_scores, with_second_score
from .tree_attributes import (
    ABOUT_NODES,
    TENSORS_OF_NODES,
    TreeRule,
    Verdict,
    read_classifier,
    read_ensemble,
    read_regressor,
)

__all__ = ["aggregate_trees", "classify_by_trees", "regress_by_trees"]

_ML = "ai.onnx.ml"


class _Ensemble:
    """Computes what a rule says, for rows of any of the types that ONNX takes."""

    def __init__(self, rule: TreeRule) -> None:
        self._rule = rule
        self._forests: dict[np.dtype[Any], Forest] = {}

    def scores(self, x: Array) -> Array:
        """Return the transformed scores: (rows, targets), in float64."""
        return transformed_scores(self._sums(self._leaves(x)), self._rule.transform)

    def labels_and_scores(self, x: Array) -> tuple[Array, Array]:
        """Return the label of each row, and the transformed scores, in float64."""
        rule = self._rule
        leaves = self._leaves(x)
        sums = self._sums(leaves)
        positive = sums[:, rule.column]
        if rule.verdict is Verdict.BEST:
            is_said = self._extremes(leaves, np.maximum)[1] | rule.has_base
            found = rule.labels[np.where(is_said, sums, -np.inf).argmax(axis=1)]
        elif rule.verdict is Verdict.POSITIVE:
            found = (positive > 0).astype(np.int64)
        else:
            found = rule.labels[(positive > rule.threshold).astype(np.intp)]
        if rule.verdict is Verdict.SECOND:
            given = with_second_score(positive, rule.transform, is_positive=rule.is_positive)
            return found, given
        return found, transformed_scores(sums, rule.transform)

    def _leaves(self, x: Array) -> Array:
        """Return (rows, trees) of leaves; two threads may make the same forest, either serves."""
        if x.ndim not in (1, 2):
            raise ValueError(f"x is {x.shape}; (rows, features) are wanted")
        rows = np.atleast_2d(x)
        is_double = self._rule.is_double or rows.dtype == np.float64
        dtype: np.dtype[Any] = np.dtype(np.float64 if is_double else np.float32)
        forest = self._forests.get(dtype)
        if forest is None:
            forest = self._forests[dtype] = make_forest(self._rule.question, dtype)
        return forest.find_leaves(rows.astype(dtype, copy=False))

    def _sums(self, leaves: Array) -> Array:
        """Return the sum, mean, minimum or maximum, and the base: (rows, targets), in float64.

        Where no leaf says anything it is the base alone.
        """
        rule = self._rule
        if rule.aggregate in ("MIN", "MAX"):
            combine = np.minimum if rule.aggregate == "MIN" else np.maximum
            found, is_said = self._extremes(leaves, combine)
            return np.asarray(np.where(is_said, found, 0) + rule.base)
        rows, entries = rule.votes.entries(leaves)
        places = rows * rule.target_count + rule.votes.targets[entries]
        size = len(leaves) * rule.target_count
        made = np.bincount(places, rule.votes.weights[entries], minlength=size)
        sums = made.astype(np.float64).reshape(-1, rule.target_count)
        if rule.aggregate == "AVERAGE":
            sums /= max(1, len(rule.question.roots))
        return np.asarray(sums + rule.base)

    def _extremes(self, leaves: Array, combine: np.ufunc) -> tuple[Array, Array]:
        """Return the least, or greatest, and whether any leaf says something: (rows, targets)."""
        votes = self._rule.votes
        rows, entries = votes.entries(leaves)
        start = np.inf if combine is np.minimum else -np.inf
        made = np.full((len(leaves), self._rule.target_count), start)
        is_said = np.zeros(made.shape, bool)
        place = rows, votes.targets[entries]
        combine.at(made, place, votes.weights[entries])
        is_said[place] = True
        return made, is_said


@own(
    "TreeEnsembleRegressor",
    since=1,
    domain=_ML,
    later=dict.fromkeys(
        (*TENSORS_OF_NODES, "base_values_as_tensor", "target_weights_as_tensor"), 3
    ),
    further=ABOUT_NODES,
    prepares=True,
)
@functools.wraps(read_regressor, assigned=())  # whose attributes it takes
def regress_by_trees(**attributes: Any) -> Callable[[Array], Array]:
    """Return what makes (rows, targets) of (rows, features): a sum, mean, minimum or maximum.

    Raises ValueError for trees that are none, and for entries of leaves that are not there.
    """
    ensemble = _Ensemble(read_regressor(**attributes))
    return lambda x: ensemble.scores(x).astype(np.float32)


@own(
    "TreeEnsembleClassifier",
    since=1,
    domain=_ML,
    later=dict.fromkeys((*TENSORS_OF_NODES, "base_values_as_tensor", "class_weights_as_tensor"), 3),
    further=ABOUT_NODES,
    prepares=True,
)
@functools.wraps(read_classifier, assigned=())  # whose attributes it takes
def classify_by_trees(**attributes: Any) -> Callable[[Array], tuple[Array, Array]]:
    """Return what makes labels and scores, (rows,) and (rows, classes), of (rows, features).

    ``Verdict`` says how. Raises ValueError for trees that are none, and for entries of leaves that
    are not there.
    """
    ensemble = _Ensemble(read_classifier(**attributes))

    def classify(x: Array) -> tuple[Array, Array]:
        labels, scores = ensemble.labels_and_scores(x)
        return labels, scores.astype(np.float32)

    return classify


@own("TreeEnsemble", since=5, domain=_ML, prepares=True)
@functools.wraps(read_ensemble, assigned=())  # whose attributes it takes
def aggregate_trees(**attributes: Any) -> Callable[[Array], Array]:
    """Return what makes (rows, targets) of (rows, features), in the type of the rows.

    Raises ValueError for trees that are none.
    """
    ensemble = _Ensemble(read_ensemble(**attributes))
    return lambda x: ensemble.scores(x).astype(x.dtype)
