"""Support vector machines of ai.onnx.ml, for all rows at once.

A kernel of all rows and all support vectors is one matmul. Classes are compared pair by pair;
pairs vote, and where probabilities are wanted those of the pairs are coupled for all rows side by
side, each until it has converged. Labels and scores are onnxruntime's.
Source of the coupling: "Probability Estimates for Multi-class Classification by Pairwise Coupling",
Wu, Lin and Weng 2004, second approach, as LIBSVM has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array
from .ml_scores import logistic, transformed_scores
from .vector_attributes import VectorClassifier, read_classifier, read_regressor

__all__ = ["classify_by_support_vectors", "regress_by_support_vectors"]

_ML = "ai.onnx.ml"


@own("SVMRegressor", since=1, domain=_ML, prepares=True)
@functools.wraps(read_regressor, assigned=())  # whose attributes it takes
def regress_by_support_vectors(**attributes: Any) -> Callable[[Array], Array]:
    """Return what makes (rows, 1) of (rows, features): a number, or with ``one_class`` 1 or -1.

    Raises ValueError for lists that do not fit each other.
    """
    machine = read_regressor(**attributes)
    vectors, factors = machine.vectors, machine.factors

    def regress(x: Array) -> Array:
        found = machine.kernel(_rows(x, vectors), vectors)
        sums = (found if factors is None else found @ factors[:, None]) + machine.shift
        if machine.is_one_class:
            return np.where(sums > 0, 1, -1).astype(np.float32)
        return transformed_scores(sums, machine.post_transform).astype(np.float32)

    return regress


@own("SVMClassifier", since=1, domain=_ML, prepares=True)
@functools.wraps(read_classifier, assigned=())  # whose attributes it takes
def classify_by_support_vectors(**attributes: Any) -> Callable[[Array], tuple[Array, Array]]:
    """Return what makes labels and scores of (rows, features).

    Without probabilities there is a score for each pair of classes, or for each class of a linear
    model; a single one is doubled. A linear model of two classes goes by a threshold on the better
    score, as onnxruntime's. Raises ValueError for lists that do not fit each other.
    """
    machine = read_classifier(**attributes)
    labels, shifts, transform = machine.labels, machine.shifts, machine.post_transform

    def classify(x: Array) -> tuple[Array, Array]:
        if machine.group_sizes:
            scores, votes = _by_pair(machine, x)
        else:
            weights = machine.weights
            scores = votes = _rows(x, weights) @ weights.T + shifts[0]
        if machine.odds is not None:
            odds = 1 - logistic(scores * machine.odds[0] + machine.odds[1])
            scores = _coupled(odds.clip(1e-7, 1 - 1e-7), machine.pairs, machine.count)
        best = votes.argmax(axis=1)
        if not machine.group_sizes and machine.count == 2 and len(shifts) == 1:
            most = votes.max(axis=1, initial=-np.inf)
            best = np.where(most >= 0.5 if machine.is_positive else most > 0, 1, best)
        named = labels[best] if len(labels) else best
        if scores.shape[1] == 1 and len(labels) == 2 and transform != "PROBIT":
            if transform in ("SOFTMAX", "SOFTMAX_ZERO"):
                return named, np.concatenate([1 - scores, scores], axis=1).astype(np.float32)
            scores = np.concatenate([-scores, scores], axis=1)
        is_alone = scores.shape[1] == 1 and transform != "PROBIT"
        return named, transformed_scores(scores, "NONE" if is_alone else transform).astype(
            np.float32
        )

    return classify


def _by_pair(machine: VectorClassifier, x: Array) -> tuple[Array, Array]:
    """Return scores of pairs, (rows, pairs), and how many of them each class has won."""
    sizes, weights = machine.group_sizes, machine.weights
    ends = np.cumsum(list(sizes))
    found = machine.kernel(_rows(x, machine.vectors), machine.vectors)
    scores = np.empty((len(found), len(machine.pairs)))
    votes = np.zeros((len(found), machine.count))
    for place, (first, second) in enumerate(machine.pairs):
        score = machine.shifts[place]
        for own_class, row in ((first, second - 1), (second, first)):
            part = slice(ends[own_class] - sizes[own_class], ends[own_class])
            score = score + found[:, part] @ weights[row, part]
        scores[:, place] = score
        votes[:, first] += score > 0
        votes[:, second] += ~(score > 0)
    return scores, votes


def _coupled(odds: Array, pairs: Sequence[tuple[int, int]], count: int) -> Array:
    """Return (rows, classes) of probabilities that suit those of pairs, (rows, pairs), best."""
    wins = np.zeros((len(odds), count, count))
    for place, (first, second) in enumerate(pairs):
        wins[:, first, second] = odds[:, place]
        wins[:, second, first] = 1 - odds[:, place]
    losses = wins.transpose(0, 2, 1)
    quadratic = -losses * wins
    places = np.arange(count)
    quadratic[:, places, places] = np.square(losses).sum(axis=2)
    found = np.full((len(odds), count), 1 / count)
    active = np.arange(len(odds))
    for _ in range(max(100, count)):
        own, matrix = found[active], quadratic[active]
        products = (matrix @ own[:, :, None])[:, :, 0]
        total = (own * products).sum(axis=1)
        is_going = np.abs(products - total[:, None]).max(axis=1, initial=0) >= 0.005 / count
        active, own, matrix = active[is_going], own[is_going], matrix[is_going]
        products, total = products[is_going], total[is_going]
        if not len(active):
            break
        for place in range(count):
            diagonal = matrix[:, place, place]
            step = (total - products[:, place]) / diagonal
            own[:, place] += step
            whole = 1 + step
            total = (total + step * (step * diagonal + 2 * products[:, place])) / whole**2
            own /= whole[:, None]
            products = (products + step[:, None] * matrix[:, place]) / whole[:, None]
        found[active] = own
    return found


def _rows(x: Array, vectors: Array) -> Array:
    """Return rows of features in float64; ValueError if they have others than the vectors."""
    rows = np.atleast_2d(x)
    if rows.ndim != 2 or rows.shape[1] != vectors.shape[1]:
        raise ValueError(f"x is {x.shape}; rows of {vectors.shape[1]} features are wanted")
    return rows.astype(np.float64)
