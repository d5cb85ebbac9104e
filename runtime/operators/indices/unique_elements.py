"""Unique, which onnx.reference gets wrong where nothing is sorted, and refuses of texts."""

from __future__ import annotations

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array


@own("Unique", since=11)
def unique(
    x: Array,
    *,
    axis: int | None = None,
    sorted: int = 1,
) -> tuple[Array, Array, Array, Array]:
    """Find the different elements, or slices along an axis; any type that has an order.

    Gives them sorted, or in the order in which they first come; then, as int64, where each first
    is, which of them each element is, and how often each occurs.
    """
    _, numbers = np.unique(x, return_inverse=True)
    rows: Array
    if axis is None:
        rows = numbers.reshape(-1)
    else:
        moved = np.moveaxis(numbers.reshape(x.shape), axis, 0)
        rows = moved.reshape(len(moved), int(np.prod(moved.shape[1:])))
    _, first, places, counts = np.unique(
        rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    places = places.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        first, counts, places = first[order], counts[order], np.argsort(order)[places]
    found = x.reshape(-1)[first] if axis is None else np.take(x, first, axis)
    return found, first.astype(np.int64), places.astype(np.int64), counts.astype(np.int64)
