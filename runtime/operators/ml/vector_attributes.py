"""What the attributes of support vector machines say: vectors, what weighs them, and classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plain_operators import Array

__all__ = [
    "VectorClassifier",
    "VectorKernel",
    "VectorRegressor",
    "read_classifier",
    "read_regressor",
]


@dataclass(frozen=True)
class VectorKernel:
    """A function of two vectors by the name that ONNX gives it. Immutable.

    LINEAR is their product p, POLY (gamma p + constant) ** degree, SIGMOID tanh(gamma p +
    constant), and RBF exp(-gamma d) of the square d of their distance.
    """

    name: str
    gamma: float
    constant: float
    degree: float

    @classmethod
    def of(cls, name: str, parameters: Sequence[float]) -> VectorKernel:
        """Read attributes; ValueError for a kernel that there is not."""
        if name not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
            raise ValueError(f"there is no kernel {name!r}")
        return cls(name, *[*_numbers(parameters).tolist(), 0.0, 0.0, 0.0][:3])

    def __call__(self, x: Array, vectors: Array) -> Array:
        """Return (rows, vectors) of rows of features and vectors, in float64."""
        products = x @ vectors.T
        if self.name == "RBF":
            lengths = np.square(x).sum(axis=1)[:, None] + np.square(vectors).sum(axis=1)
            return np.asarray(np.exp(-self.gamma * (lengths - 2 * products)))
        if self.name == "LINEAR":
            return np.asarray(products)
        sums = self.gamma * products + self.constant
        return np.asarray(sums**self.degree if self.name == "POLY" else np.tanh(sums))


@dataclass(frozen=True)
class VectorRegressor:
    """A sum over support vectors, (vectors, features), or a linear model without any."""

    kernel: VectorKernel
    vectors: Array
    factors: Array | None
    """Of each vector; None for a linear model, whose only vector is what weighs the features."""
    shift: float
    is_one_class: bool
    post_transform: str


@dataclass(frozen=True)
class VectorClassifier:
    """Classes that are told apart by sums over support vectors, or a linear model of each."""

    kernel: VectorKernel
    vectors: Array
    weights: Array
    """(classes - 1, vectors): of a vector in the pairs of its class, the other classes in order.

    Of a linear model (classes, features)."""
    shifts: Array
    group_sizes: tuple[int, ...]
    """How many of the vectors each class has, one class after the other; () for a linear model."""
    odds: Array | None
    """(2, pairs): factors and shifts of what gives probabilities; None where scores are wanted."""
    labels: Array
    post_transform: str
    is_positive: bool

    @property
    def count(self) -> int:
        """How many classes there are."""
        return max(1, len(self.labels))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        count = self.count
        return [(first, second) for first in range(count) for second in range(first + 1, count)]


def read_regressor(
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> VectorRegressor:
    """Read ``SVMRegressor``; ValueError for lists that do not fit each other."""
    factors, shifts = _numbers(coefficients), _numbers(rho)
    vectors = _matrix(support_vectors, n_supports) if n_supports else factors[None]
    if not len(shifts) or (n_supports and len(factors) != n_supports):
        raise ValueError(f"{len(factors)} coefficients and {len(shifts)} rho of {n_supports}")
    return VectorRegressor(
        VectorKernel.of(kernel_type if n_supports else "LINEAR", kernel_params),
        vectors,
        factors if n_supports else None,
        float(shifts[0]),
        bool(one_class),
        post_transform,
    )


def read_classifier(
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
) -> VectorClassifier:
    """Read ``SVMClassifier``; ValueError for lists that do not fit each other."""
    labels = np.array(list(classlabels_ints), np.int64)
    if not len(labels):
        labels = np.array(list(classlabels_strings), object)
    count, vector_count = max(1, len(labels)), sum(vectors_per_class)
    shifts, factors = _numbers(rho), _numbers(coefficients)
    pair_count = count * (count - 1) // 2
    vectors = _matrix(support_vectors or coefficients, vector_count or count)
    kernel = VectorKernel.of(kernel_type if vector_count else "LINEAR", kernel_params)
    has_odds = vector_count > 0 and len(prob_a) > 0
    if vector_count and (len(vectors_per_class) != count or len(shifts) != pair_count):
        raise ValueError(f"{len(vectors_per_class)} groups and {len(shifts)} rho of {count} labels")
    if not len(shifts) or (has_odds and not len(prob_a) == len(prob_b) == pair_count):
        raise ValueError(f"{len(prob_a)} and {len(prob_b)} numbers for {pair_count} pairs")
    weights = factors.reshape(-1, vector_count) if vector_count else factors.reshape(count, -1)
    if vector_count and len(weights) != count - 1:
        raise ValueError(
            f"{len(factors)} coefficients for {vector_count} vectors of {count} labels"
        )
    return VectorClassifier(
        kernel,
        vectors,
        weights,
        shifts,
        tuple(vectors_per_class) if vector_count else (),
        np.stack([_numbers(prob_a), _numbers(prob_b)]) if has_odds else None,
        labels,
        post_transform,
        bool((factors >= 0).all()),
    )


def _numbers(given: Sequence[float]) -> Array:
    return np.array(list(given), np.float32).astype(np.float64)


def _matrix(given: Sequence[float], rows: int) -> Array:
    if rows < 1 or len(given) % rows:
        raise ValueError(f"{len(given)} numbers are no {rows} vectors")
    return _numbers(given).reshape(rows, -1)
