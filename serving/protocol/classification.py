"""The classification extension: the greatest elements of an output as texts. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.graph import DType
from .call import Requested
from .datatypes import datatype_of
from .refusal import RefusedError

__all__ = ["class_labels"]

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_LABELS = 1_000_000  # each is a text of its own


def class_labels(array: Array, requested: Requested) -> Array:
    """Return the greatest ``class_count`` elements of each row as ``value:index``, greatest first.

    Rows are along the first of two or more dimensions, each flattened; one dimension is one row.
    Elements that are equal come in order of their index, and NaN last. Raises RefusedError for what
    is no number, and for more than a million texts.
    """
    field = f"{requested.field or requested.name}.parameters.classification"
    datatype = datatype_of(DType.of(array.dtype)) or ""
    if datatype in ("", "BOOL", "BYTES") or not array.ndim:
        raise RefusedError("only outputs of numbers have classes", field=field)
    row_count = len(array) if array.ndim > 1 else 1
    rows = array.reshape(row_count, array.size // row_count if row_count else _row_size(array))
    count = min(requested.class_count, rows.shape[1])
    if row_count * count > _MOST_LABELS:
        text = f"{row_count * count} classes; at most {_MOST_LABELS} are returned"
        raise RefusedError(text, field=field)
    best = _descending(rows)[:, :count]
    is_whole = rows.dtype.kind in "iu"
    texts = np.empty(best.shape, object)
    for row, column in np.ndindex(*best.shape):
        index = int(best[row, column])
        value = rows[row, index]
        texts[row, column] = f"{value}:{index}" if is_whole else f"{float(value):f}:{index}"
    return texts if array.ndim > 1 else texts.reshape(-1)


def _row_size(array: Array) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64))


def _descending(rows: Array) -> Array:
    """Return the order of each row, greatest first; of equals the first in the row."""
    if rows.dtype.kind not in "iu":
        return np.argsort(-rows.astype(np.float64), axis=1, kind="stable")
    # Whole numbers have no negative that is one of their type, and 64 bits are no float.
    ascending = np.argsort(rows[:, ::-1], axis=1, kind="stable")
    order: Array = rows.shape[1] - 1 - ascending[:, ::-1]
    return order
