"""How far outputs are from those of another precision. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["OutputError", "output_errors"]


@dataclass(frozen=True)
class OutputError:
    """The largest difference of one output; ``relative`` is to the largest number expected."""

    output: str
    absolute: float
    relative: float


def output_errors(made: Mapping[str, Any], expected: Mapping[str, Any]) -> list[OutputError]:
    """Compare outputs of numbers, by name; where the shapes differ, or only one is finite: inf."""
    errors = []
    for name, wanted in expected.items():
        found = made.get(name)
        if not isinstance(wanted, np.ndarray) or not isinstance(found, np.ndarray):
            continue
        if wanted.dtype == object or not wanted.size:
            continue
        errors.append(OutputError(name, *_distance(found, wanted)))
    return errors


def _distance(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> tuple[float, float]:
    if found.shape != wanted.shape:
        return float("inf"), float("inf")
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = found.astype(wide), wanted.astype(wide)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.isfinite(a[~is_same]).all() or not np.isfinite(b[~is_same]).all():
        return float("inf"), float("inf")
    absolute = float(np.abs(a[~is_same] - b[~is_same]).max(initial=0.0))
    largest = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    if not absolute:
        return 0.0, 0.0
    return absolute, absolute / largest if largest else float("inf")
