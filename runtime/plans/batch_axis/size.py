"""Lengths as products: a number times symbols, one of which may be the batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["BATCH", "ONE", "Size", "length_of", "product", "unknown_length", "unknown_number"]

BATCH = "batch"
"""The symbol of how many rows there are; all others begin with a mark of their own."""
_SYMBOL, _LENGTH, _NUMBER = "=", "#", "?"


@dataclass(frozen=True, slots=True)
class Size:
    """``factor`` times symbols, in order, each as often as it is a factor. Immutable.

    Two that are equal are the same number in every run; two that differ may be, too.
    """

    factor: int
    symbols: tuple[str, ...] = ()

    @property
    def known(self) -> int | None:
        """The number, where there are no symbols."""
        return None if self.symbols else self.factor

    @property
    def has_batch(self) -> bool:
        """True if it changes with the batch."""
        return BATCH in self.symbols

    @property
    def is_length(self) -> bool:
        """True if it is surely 0 or more."""
        return self.factor >= 0 and not any(name.startswith(_NUMBER) for name in self.symbols)

    def __mul__(self, other: Size) -> Size:
        factor = self.factor * other.factor
        return Size(factor, tuple(sorted((*self.symbols, *other.symbols))) if factor else ())

    def divided_by(self, other: Size) -> Size | None:
        """Divide, or None where it is not seen that nothing is left over."""
        rest = Counter(self.symbols)
        rest.subtract(other.symbols)
        if other.factor == 0 or self.factor % other.factor or min(rest.values(), default=0) < 0:
            return None
        return Size(self.factor // other.factor, tuple(sorted(rest.elements())))


ONE = Size(1)


def product(sizes: Iterable[Size]) -> Size:
    """Multiply sizes."""
    return math.prod(sizes, start=ONE)


def length_of(dim: int | str) -> Size:
    """Return the size of a length or a symbol of the model other than the batch."""
    return Size(dim) if isinstance(dim, int) else Size(1, (_SYMBOL + dim,))


def unknown_length(value: str, axis: int) -> Size:
    """Return a length that nothing is known of, except that the batch does not change it."""
    return Size(1, (f"{_LENGTH}{value}[{axis}]",))


def unknown_number(value: str, index: int) -> Size:
    """Return a number that nothing is known of, except that the batch does not change it."""
    return Size(1, (f"{_NUMBER}{value}[{index}]",))
