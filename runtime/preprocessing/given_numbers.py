"""Numbers that users give to steps, checked when they are given."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ...errors import TensorError

__all__ = ["integers_of", "length_of", "number_text", "numbers_of"]


def numbers_of(given: float | Sequence[float], *, may_be_zero: bool) -> float | tuple[float, ...]:
    """Return one finite number, or one for each channel; raises TensorError for anything else."""
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if isinstance(given, str | bytes) or array.ndim > 1 or not array.size:
        raise TensorError(f"{given!r} is neither a number nor a list of them")
    if not np.isfinite(array).all():
        raise TensorError(f"{given!r} is not finite")
    if not may_be_zero and not array.all():
        raise TensorError(f"{given!r} would divide by zero")
    return tuple(array.tolist()) if array.ndim else float(array)


def integers_of(given: Sequence[int], what: str) -> tuple[int, ...]:
    """Return a list of integers of any sign; raises TensorError for anything else."""
    try:
        return tuple(operator.index(number) for number in given)
    except TypeError as error:
        raise TensorError(
            f"{what} is a list with an integer for each axis, not {given!r}"
        ) from error


def length_of(given: int, what: str) -> int:
    """Return a length of at least 1; raises TensorError for anything else."""
    try:
        length = operator.index(given)
    except TypeError:
        length = 0
    if length < 1:
        raise TensorError(f"the {what} is an integer of at least 1, not {given!r}")
    return length


def number_text(numbers: float | Sequence[float]) -> str:
    """Write numbers as OpenVINO does: ``(1,2.5,3)``."""
    listed = numbers if isinstance(numbers, Sequence) else (numbers,)
    return f"({','.join(f'{number:g}' for number in listed)})"
