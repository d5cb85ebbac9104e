"""What classifiers do with their scores, in whole arrays."""

from __future__ import annotations

import numpy as np

from ..plain_operators import Array

__all__ = ["transformed_scores", "with_second_score"]


def transformed_scores(scores: Array, name: str) -> Array:
    """Apply a ``post_transform`` to each row of (rows, classes).

    Raises ValueError for one that ONNX does not have.
    """
    if name == "NONE" or not scores.size:
        return scores
    if name == "LOGISTIC":
        return logistic(scores)
    if name == "PROBIT":
        return _probit(scores)
    if name not in ("SOFTMAX", "SOFTMAX_ZERO"):
        raise ValueError(f"scores cannot be transformed by {name!r}")
    highest = scores.max(axis=1, keepdims=True)
    powers = np.exp(scores - highest)
    if name == "SOFTMAX_ZERO":
        powers = np.where(np.abs(scores) > 1e-7, powers, scores * np.exp(-highest))
    total = powers.sum(axis=1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total))


def with_second_score(scores: Array, name: str, *, is_positive: bool) -> Array:
    """Return (rows, 2) for (rows,) that speak of the second of two classes alone.

    As onnxruntime has it: LOGISTIC gives shares of one; otherwise the first class has the rest to
    one where all weights are positive, else the opposite. PROBIT makes (rows, 1).
    """
    if name == "PROBIT":
        return _probit(scores[:, None])
    if name == "LOGISTIC":
        return logistic(np.stack([-scores, scores], axis=1))
    return np.stack([1 - scores if is_positive else -scores, scores], axis=1)


def logistic(scores: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = 1 / (1 + np.exp(-np.abs(scores)))
    return np.asarray(np.where(scores < 0, 1 - small, small))


def _probit(scores: Array) -> Array:
    """Approximate the normal distribution's quantiles; Winitzki 2008.

    Those of 0 and 1 are infinite, as onnxruntime has them; onnx.reference has 0.
    """
    x = scores * 2 - 1
    with np.errstate(all="ignore"):
        log = np.log((1 - x) * (1 + x))
        half = 2 / (np.pi * 0.147) + 0.5 * log
        found = np.sign(x) * np.sqrt(-half + np.sqrt(half * half - log / 0.147))
    return np.asarray(1.41421356 * found)
