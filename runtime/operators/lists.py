"""What an operand that is a list may look like."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["numbers_of"]


def numbers_of(array: np.ndarray[Any, Any]) -> list[Any]:
    """Return the numbers of a list; one number stands for a list of one.

    Raises ValueError for what has more axes, and so no order that ONNX tells, unless it is empty.
    """
    if array.ndim > 1 and array.size:
        raise ValueError(f"{list(array.shape)} is the shape of no list, which has one axis")
    numbers: list[Any] = array.ravel().tolist()
    return numbers
