"""The classification extension: the greatest elements of an output as texts. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from .call import Requested
from .refusal import RefusedError

__all__ = ["class_labels"]

Array = np.ndarray[Any, np.dtype[Any]]


def class_labels(array: Array, requested: Requested) -> Array:
    """Return the greatest ``class_count`` elements of each row as ``value:index``, greatest first.

    Rows are along the first of two or more dimensions, each flattened; one dimension is one row.
    Elements that are equal come in order of their index. Raises RefusedError for what is no number.
    """
    if array.dtype.kind not in "iuf" or not array.ndim:
        raise RefusedError(
            "only outputs of numbers have classes",
            field=f"{requested.field or requested.name}.parameters.classification",
        )
    rows = array.reshape(len(array), -1) if array.ndim > 1 and len(array) else array.reshape(1, -1)
    count = min(requested.class_count, rows.shape[1])
    best = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    texts = np.empty(best.shape, object)
    for row, column in np.ndindex(*best.shape):
        index = int(best[row, column])
        texts[row, column] = f"{rows[row, index]:f}:{index}"
    return texts if array.ndim > 1 else texts.reshape(-1)
