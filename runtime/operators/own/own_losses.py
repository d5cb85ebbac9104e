"""Losses of classification, which onnx.reference takes from a softmax that may vanish.

Its loops in Python also count a negative label from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..plain_operators import Array
from .own_elementwise import log_softmax
from .own_operators import own

__all__ = ["likelihood_loss", "softmax_loss"]


@own("SoftmaxCrossEntropyLoss", since=12, takes_output_count=True)
def softmax_loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    output_count: int,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Any:
    """Compute the loss of softmax over the second axis, and its logarithm if that is wanted.

    Raises ValueError for labels that are no classes and not ignored.
    """
    logs = log_softmax(scores, axis=1)
    loss = likelihood_loss(logs, labels, weights, reduction=reduction, ignore_index=ignore_index)
    return (loss, logs) if output_count == 2 else loss


@own("NegativeLogLikelihoodLoss", since=12)
def likelihood_loss(
    logs: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Array:
    """Pick the number of each label's class along the second axis, negate, and reduce.

    Raises ValueError for labels that are no classes and not ignored.
    """
    if logs.ndim < 2 or labels.shape != (logs.shape[0], *logs.shape[2:]):
        raise ValueError(f"labels of shape {labels.shape} are not those of {logs.shape}")
    is_counted = np.full(labels.shape, True) if ignore_index is None else labels != ignore_index
    counted = labels[is_counted]
    if counted.size and not 0 <= counted.min() <= counted.max() < logs.shape[1]:
        raise ValueError(f"labels have to be from 0 to {logs.shape[1] - 1}, or the ignored one")
    places = np.where(is_counted, labels, 0).astype(np.int64)
    with np.errstate(all="ignore"):
        if logs.shape[1]:
            picked = -np.take_along_axis(logs, places[:, None], 1)[:, 0]
        else:
            picked = np.zeros(labels.shape, logs.dtype)
        loss = np.where(is_counted, picked, logs.dtype.type(0))
        if weights is None:
            shares = is_counted.astype(logs.dtype)
        else:
            shares = np.where(is_counted, weights[places] if len(weights) else 0, 0)
            loss = (shares * loss).astype(logs.dtype)
        if reduction == "none":
            return loss
        total = loss.sum()
        return np.asarray(total / shares.sum() if reduction == "mean" else total, logs.dtype)
