"""Support vector machines of ai.onnx.ml, for all rows at once.

A kernel of all rows and all support vectors is one matmul. Classes are compared pair by pair;
pairs vote, and where probabilities are wanted those of the pairs are coupled for all rows side by
side, each until it has converged. Labels and scores are onnxruntime's.
Source of the coupling: "Probability Estimates for Multi-class Classification by Pairwise Coupling",
Wu, Lin and Weng 2004, second approach, as LIBSVM has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array
from .ml_scores import logistic, transformed_scores

__all__ = ["classify_by_support_vectors", "regress_by_support_vectors"]

_ML = "ai.onnx.ml"


@own("SVMRegressor", since=1, domain=_ML, prepares=True)
def regress_by_support_vectors(
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Callable[[Array], Array]:
    """Return what makes (rows, 1) of (rows, features): a number, or with ``one_class`` 1 or -1.

    Raises ValueError for lists that do not fit each other.
    """
    factors, shifts = _numbers(coefficients), _numbers(rho)
    vectors = _matrix(support_vectors, n_supports) if n_supports else factors[None]
    if not len(shifts) or (n_supports and len(factors) != n_supports):
        raise ValueError(f"{len(factors)} coefficients and {len(shifts)} rho of {n_supports}")
    kernel = _kernel(kernel_type if n_supports else "LINEAR", kernel_params)

    def regress(x: Array) -> Array:
        found = kernel(_rows(x, vectors), vectors)
        sums = (found @ factors[:, None] if n_supports else found) + shifts[0]
        if one_class:
            return np.where(sums > 0, 1, -1).astype(np.float32)
        return transformed_scores(sums, post_transform).astype(np.float32)

    return regress


@own("SVMClassifier", since=1, domain=_ML, prepares=True)
def classify_by_support_vectors(
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> Callable[[Array], tuple[Array, Array]]:
    """Return what makes labels and scores of (rows, features).

    Without probabilities there is a score for each pair of classes, or for each class of a linear
    model; a single one is doubled. A linear model of two classes goes by a threshold on the better
    score, as onnxruntime's. Raises ValueError for lists that do not fit each other.
    """
    labels = np.array(list(classlabels_ints), np.int64)
    if not len(labels):
        labels = np.array(list(classlabels_strings), object)
    count, vector_count = max(1, len(labels)), sum(vectors_per_class)
    shifts, factors = _numbers(rho), _numbers(coefficients)
    pairs = [(first, second) for first in range(count) for second in range(first + 1, count)]
    vectors = _matrix(support_vectors or coefficients, vector_count or count)
    kernel = _kernel(kernel_type if vector_count else "LINEAR", kernel_params)
    has_odds = vector_count > 0 and len(prob_a) > 0
    if vector_count and (len(vectors_per_class) != count or len(shifts) != len(pairs)):
        raise ValueError(f"{len(vectors_per_class)} groups and {len(shifts)} rho of {count} labels")
    if not len(shifts) or (has_odds and not len(prob_a) == len(prob_b) == len(pairs)):
        raise ValueError(f"{len(prob_a)} and {len(prob_b)} numbers for {len(pairs)} pairs")
    weights = factors.reshape(-1, vector_count) if vector_count else factors.reshape(count, -1)
    if vector_count and len(weights) != count - 1:
        raise ValueError(
            f"{len(factors)} coefficients for {vector_count} vectors of {count} labels"
        )
    is_positive = bool((factors >= 0).all())
    ends = np.cumsum(list(vectors_per_class))

    def by_pair(x: Array) -> tuple[Array, Array]:
        found = kernel(_rows(x, vectors), vectors)
        scores = np.empty((len(found), len(pairs)))
        votes = np.zeros((len(found), count))
        for place, (first, second) in enumerate(pairs):
            score = shifts[place]
            for own_class, row in ((first, second - 1), (second, first)):
                part = slice(ends[own_class] - vectors_per_class[own_class], ends[own_class])
                score = score + found[:, part] @ weights[row, part]
            scores[:, place] = score
            votes[:, first] += score > 0
            votes[:, second] += ~(score > 0)
        return scores, votes

    def classify(x: Array) -> tuple[Array, Array]:
        if vector_count:
            scores, votes = by_pair(x)
        else:
            scores = votes = _rows(x, weights) @ weights.T + shifts[0]
        if has_odds:
            odds = 1 - logistic(scores * _numbers(prob_a) + _numbers(prob_b))
            scores = _coupled(odds.clip(1e-7, 1 - 1e-7), pairs, count)
        best = votes.argmax(axis=1)
        if not vector_count and count == 2 and len(shifts) == 1:
            most = votes.max(axis=1, initial=-np.inf)
            best = np.where(most >= 0.5 if is_positive else most > 0, 1, best)
        named = labels[best] if len(labels) else best
        if scores.shape[1] == 1 and len(labels) == 2 and post_transform != "PROBIT":
            if post_transform in ("SOFTMAX", "SOFTMAX_ZERO"):
                return named, np.concatenate([1 - scores, scores], axis=1).astype(np.float32)
            scores = np.concatenate([-scores, scores], axis=1)
        is_alone = scores.shape[1] == 1 and post_transform != "PROBIT"
        return named, transformed_scores(scores, "NONE" if is_alone else post_transform).astype(
            np.float32
        )

    return classify


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


def _kernel(name: str, parameters: Sequence[float]) -> Callable[[Array, Array], Array]:
    """Return what makes (rows, vectors) of both; ValueError for a kernel that there is not."""
    given = [*_numbers(parameters).tolist(), 0.0, 0.0, 0.0]
    gamma, constant, degree = given[0], given[1], given[2]
    if name not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        raise ValueError(f"there is no kernel {name!r}")

    def kernel(x: Array, vectors: Array) -> Array:
        products = x @ vectors.T
        if name == "RBF":
            lengths = np.square(x).sum(axis=1)[:, None] + np.square(vectors).sum(axis=1)
            return np.asarray(np.exp(-gamma * (lengths - 2 * products)))
        if name == "POLY":
            return np.asarray((gamma * products + constant) ** degree)
        return np.tanh(gamma * products + constant) if name == "SIGMOID" else products

    return kernel


def _numbers(given: Sequence[float]) -> Array:
    return np.array(list(given), np.float32).astype(np.float64)


def _matrix(given: Sequence[float], rows: int) -> Array:
    if rows < 1 or len(given) % rows:
        raise ValueError(f"{len(given)} numbers are no {rows} vectors")
    return _numbers(given).reshape(rows, -1)


def _rows(x: Array, vectors: Array) -> Array:
    """Return rows of features in float64; ValueError if they have others than the vectors."""
    rows = np.atleast_2d(x)
    if rows.ndim != 2 or rows.shape[1] != vectors.shape[1]:
        raise ValueError(f"x is {x.shape}; rows of {vectors.shape[1]} features are wanted")
    return rows.astype(np.float64)
