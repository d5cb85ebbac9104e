"""What an operand that is a list may look like."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["numbers_of"]


def numbers_of(array: np.ndarray[Any, Any], *, may_be_one: bool = False) -> list[Any]:
    """Return the numbers of a list, or the only one of axes that may be written as one number.

    Raises ValueError for what has another count of axes than 1, and so no order that ONNX tells,
    unless it is empty.
    """
    if array.ndim != 1 and array.size and not (may_be_one and array.ndim == 0):
        raise ValueError(f"{list(array.shape)} is the shape of no list, which has one axis")
    numbers: list[Any] = array.ravel().tolist()
    return numbers
