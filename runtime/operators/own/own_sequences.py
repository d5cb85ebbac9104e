"""Operators of sequences: their items by position, and tensors split into items.

onnx.reference takes any position to insert at, the end as the beginning, and lengths to split
into that are not those of the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["item_at", "split_to_sequence", "with_item", "without_item"]


@own("SequenceAt", since=11)
def item_at(items: Sequence[Array], position: Array) -> Array:
    """Return an item, the last one at -1; IndexError for a position that is not there."""
    return items[_place(position, len(items), len(items) - 1)]


@own("SequenceErase", since=11)
def without_item(items: Sequence[Array], position: Array | None = None) -> list[Array]:
    """Leave out an item, by default the last; IndexError for a position that is not there."""
    count = len(items)
    place = _place(np.array(-1) if position is None else position, count, count - 1)
    return [*items[:place], *items[place + 1 :]]


@own("SequenceInsert", since=11)
def with_item(items: Sequence[Array], item: Array, position: Array | None = None) -> list[Array]:
    """Put an item before the one at a position, by default at the end, as the count of items says.

    Raises IndexError for a position beyond both.
    """
    count = len(items)
    place = count if position is None else _place(position, count, count)
    return [*items[:place], item, *items[place:]]


def _place(position: Array, count: int, last: int) -> int:
    """Return the place that a position means in a sequence of ``count`` items, up to ``last``."""
    if position.size != 1:
        raise ValueError(f"{position.size} positions are given, and one is wanted")
    place = int(position.item())
    if not -count <= place <= last:
        raise IndexError(f"position {place} is outside a sequence of {count} items")
    return place if place >= 0 else place + count


@own("SplitToSequence", since=11)
def split_to_sequence(
    x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    """Split along an axis into views: of ``split`` elements each, or of its lengths, or of one.

    Of one element without the axis, unless ``keepdims``. Raises ValueError for lengths that do not
    make up the axis, IndexError for an axis that is not there.
    """
    along = range(x.ndim)[axis]
    count = x.shape[along]
    if split is None and not keepdims:
        return list(np.moveaxis(x, along, 0))
    ends = _ends(np.array(1) if split is None else split, count)
    return [
        x[(slice(None),) * along + (slice(start, end),)]
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _ends(split: Array, count: int) -> list[int]:
    if split.ndim > 1:
        raise ValueError(f"{list(split.shape)} is the shape of no length, and of no list of them")
    if split.ndim == 0:
        length = int(split)
        if length < 1:
            raise ValueError(f"parts of length {length} are wanted, and 1 is the least")
        return [min(start + length, count) for start in range(0, count, length)]
    lengths = split.tolist()
    if any(length < 0 for length in lengths) or sum(lengths) != count:
        raise ValueError(f"lengths {lengths} do not make up an axis of length {count}")
    return list(accumulate(lengths))
