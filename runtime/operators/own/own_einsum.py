"""Einsum of several operands, two at a time."""

from __future__ import annotations

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["einsum"]

_MOST_BETWEEN = 1 << 26
"""Elements of a product between two; where it has more, all that is left is multiplied at once."""


# onnx.reference holds what lies between to the size of an operand or of the result, and where that
# is too little multiplies all of them in one loop over all axes.
@own("Einsum", since=12)
def einsum(*operands: Array, equation: str) -> Array:
    """Multiply and sum, in the order that takes the fewest products."""
    if operands[0].dtype.kind == "V":  # ml_dtypes' bfloat16 and its like
        wide = [operand.astype(np.float32) for operand in operands]
        return np.asarray(einsum(*wide, equation=equation)).astype(operands[0].dtype)
    return np.asarray(np.einsum(equation, *operands, optimize=("greedy", _MOST_BETWEEN)))
