"""Arrays whose content tells where each element belongs."""

import numpy as np

__all__ = ["ints", "numbers"]


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Count from 0 on, row by row."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    """Make a vector of int64, as shapes and axes are."""
    return np.array(values, np.int64)
