"""How far a quantised model's outputs are from the float model's, over many samples. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Differences", "add_sample"]

Array = np.ndarray[Any, Any]


class Differences:
    """Sums up the differences of one output, sample by sample. Not thread-safe."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.largest = 0.0
        """The largest number that was expected; infinite and undefined ones do not count."""
        self.largest_error = 0.0
        self._error_sum = self._squares = self._error_squares = 0.0
        self._count = self._rows = self._same_rows = 0

    def add(self, found: Array, wanted: Array) -> None:
        """Take one sample's output into account; another shape, or lost numbers, are infinite."""
        if found.shape != wanted.shape:
            self.largest_error = self._error_sum = self._error_squares = math.inf
            return
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        is_same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            errors = np.where(is_same, 0.0, np.abs(a - b))
        errors[~np.isfinite(errors)] = math.inf
        finite = np.where(np.isfinite(b), b, 0.0)
        self.largest = max(self.largest, float(np.abs(finite).max(initial=0.0)))
        self.largest_error = max(self.largest_error, float(errors.max(initial=0.0)))
        self._error_sum += float(errors.sum())
        self._squares += float((finite**2).sum())
        self._error_squares += float((errors**2).sum())
        self._count += errors.size
        if b.ndim > 1 and b.shape[-1] > 1 and b.size:
            chosen = a.argmax(axis=-1) == b.argmax(axis=-1)
            self._rows += chosen.size
            self._same_rows += int(chosen.sum())

    @property
    def mean_error(self) -> float:
        """The mean of all differences."""
        return self._error_sum / self._count if self._count else self._error_sum

    @property
    def noise_ratio_db(self) -> float:
        """Signal to noise, in decibels; infinite where nothing differs."""
        if not self._error_squares:
            return math.inf
        if not self._squares or math.isinf(self._error_squares):
            return -math.inf
        return 10 * math.log10(self._squares / self._error_squares)

    @property
    def same_choice(self) -> float | None:
        """The share of rows whose largest element is at the same place; None without rows."""
        return self._same_rows / self._rows if self._rows else None


def add_sample(
    differences: dict[str, Differences], found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Take one sample into account, output by output; what holds no real numbers is left out."""
    for name, expected in wanted.items():
        made = found.get(name)
        if not isinstance(expected, np.ndarray) or not isinstance(made, np.ndarray):
            continue
        if expected.dtype == object or expected.dtype.kind == "c":
            continue
        differences.setdefault(name, Differences(name)).add(made, expected)
