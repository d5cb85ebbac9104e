"""Linear models of ai.onnx.ml in whole arrays, for transforms and types that are not decomposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array
from .ml_scores import transformed_scores

__all__ = ["classify_linearly", "regress_linearly"]

_ML = "ai.onnx.ml"


@own("LinearRegressor", since=1, domain=_ML)
def regress_linearly(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    """Return (rows, targets), in float32; ValueError for coefficients that fit no such rows.

    Of one target PROBIT alone transforms, as onnxruntime has it.
    """
    scores = _scores(x, coefficients, intercepts, targets)
    if targets == 1 and post_transform != "PROBIT":
        return scores.astype(np.float32)
    return transformed_scores(scores, post_transform).astype(np.float32)


@own("LinearClassifier", since=1, domain=_ML)
def classify_linearly(
    x: Array,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """Return labels and scores, in float32, as onnxruntime.

    One row of coefficients for two labels speaks of the second one: the other has the rest to one,
    and LOGISTIC and PROBIT transform it and its opposite. Raises ValueError for coefficients that
    fit no rows.
    """
    labels = np.array(list(classlabels_ints), np.int64)
    if not len(labels):
        labels = np.array(list(classlabels_strings), object)
    width = x.shape[-1] if x.ndim else 1
    count = len(coefficients) // max(1, width)
    scores = _scores(x, coefficients, intercepts, count)
    if count == 1 and len(labels) == 2:
        found = labels[(scores[:, 0] > 0).astype(np.intp)]
        if post_transform in ("LOGISTIC", "PROBIT"):
            pair = np.concatenate([-scores, scores], axis=1)
            made = transformed_scores(pair, post_transform)
        else:
            made = np.concatenate([1 - scores, scores], axis=1)
        return found, made.astype(np.float32)
    if len(labels) < max(2, count):
        raise ValueError(f"{len(labels)} labels are given for {count} rows of coefficients")
    found = labels[scores.argmax(axis=1)]
    return found, transformed_scores(scores, post_transform).astype(np.float32)


def _scores(
    x: Array, coefficients: Sequence[float], intercepts: Sequence[float], count: int
) -> Array:
    rows = np.atleast_2d(x)
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float32)
    factors = np.array(list(coefficients), np.float32).astype(rows.dtype)
    if rows.ndim != 2 or count < 1 or len(factors) != count * rows.shape[1]:
        raise ValueError(f"{len(factors)} coefficients are no {count} rows for x of {x.shape}")
    if len(intercepts) not in (0, count):
        raise ValueError(f"{len(intercepts)} intercepts are given for {count} rows of coefficients")
    shifts = np.array(list(intercepts) or [0.0], np.float32).astype(rows.dtype)
    return np.asarray(rows @ factors.reshape(count, -1).T + shifts)
