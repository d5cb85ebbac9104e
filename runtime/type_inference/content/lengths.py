"""Lists of lengths, as far as they are known: the content of the tensors that compute shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...graph import DType, Node
from ...graph.sym_array import array_of_numbers, has_numbers, is_symbolic

__all__ = [
    "LIMIT",
    "ContentRule",
    "Element",
    "Lengths",
    "constant_lengths",
    "elementwise",
    "known_integers",
]

LIMIT = 64
"""Elements of a constant that may be part of a shape; ranks are far smaller."""

Element = int | float | str | None
"""A number or a truth value, the symbol of a length, which is never negative, or None: open."""


class Lengths(NamedTuple):
    """A list of lengths (1-D), or a single one (0-D), known at least in part.

    Also what arithmetic makes of lengths on the way: floats that are finite, and truth values.
    """

    dims: tuple[Element, ...]
    is_scalar: bool = False
    dtype: DType = DType.INT64

    def as_array(self) -> np.ndarray | None:
        """Return the tensor that holds them, or None while one of them is not known."""
        for dim in self.dims:
            if dim is None or isinstance(dim, str):
                return None
        array: np.ndarray = array_of_numbers(
            self.dims, is_scalar=self.is_scalar, dtype=self.dtype.numpy
        )
        return array


ContentRule = Callable[[Node, Sequence[Lengths | None]], Lengths | list[Lengths] | None]
"""What a node's output holds, or a list for all its outputs, by what its inputs hold.

There are always at least as many inputs as the operator may have, None for those that are left out.
"""

_DTYPES = {
    dtype.numpy: dtype
    for dtype in (DType.INT64, DType.INT32, DType.FLOAT32, DType.FLOAT64, DType.BOOL)
}


def constant_lengths(array: np.ndarray) -> Lengths | None:
    """Read a small constant; None for one that is no list, or of a type that lengths never have."""
    if array.ndim > 1 or (is_symbolic(array) and not has_numbers(array)) or array.size > LIMIT:
        return None
    dtype = _DTYPES.get(array.dtype)
    if dtype is None:
        return None
    items = array.reshape(-1).tolist()
    if dtype.is_floating:
        items = [item if math.isfinite(item) else None for item in items]
    return Lengths(tuple(items), array.ndim == 0, dtype)


def known_integers(lengths: Lengths | None) -> list[int] | None:
    """Return the integers of a list of which all are known."""
    if lengths is None or lengths.dtype not in (DType.INT64, DType.INT32):
        return None
    known = [dim for dim in lengths.dims if isinstance(dim, int)]
    return known if len(known) == len(lengths.dims) else None


def _rows(operands: Sequence[Lengths]) -> Iterator[tuple[Element, ...]] | None:
    """Walk the elements of broadcast lists side by side; None if the lists do not fit."""
    counts = {len(operand.dims) for operand in operands} - {1}
    if len(counts) > 1:
        return None
    count = counts.pop() if counts else 1
    return zip(
        *(item.dims * count if len(item.dims) == 1 else item.dims for item in operands), strict=True
    )


def elementwise(
    operands: Sequence[Lengths | None], dtype: DType, function: Callable[..., Element]
) -> Lengths | None:
    """Apply a function element by element to lists that broadcast; None if they do not fit."""
    given = [operand for operand in operands if operand is not None]
    rows = _rows(given)
    if rows is None:
        return None
    dims = tuple(function(*row) for row in rows)
    return Lengths(dims, all(operand.is_scalar for operand in given), dtype)
