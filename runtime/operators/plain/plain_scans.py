"""Plain operators that give each place of an axis the sum or product of what lies before it."""

from __future__ import annotations

import numpy as np

from ..lists import numbers_of
from ..plain_operators import Array, PlainFunction, plain

__all__: list[str] = []


def _scan(combine: np.ufunc, nothing: int) -> PlainFunction:
    def scan(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
        """Keep the shape and type of x. axis: one number, alone or as a list of one.

        A place counts to its own sum unless ``exclusive``; ``reverse`` starts at the end.
        """
        numbers = numbers_of(axis, may_be_one=True)
        if len(numbers) != 1:
            raise ValueError(f"{len(numbers)} axes are given, and one is wanted")
        given = np.flip(x, numbers[0]) if reverse else x
        made = combine.accumulate(given, axis=numbers[0], dtype=x.dtype)
        if exclusive:
            own, made = np.moveaxis(made, numbers[0], 0), np.full_like(made, nothing)
            np.moveaxis(made, numbers[0], 0)[1:] = own[:-1]
        return np.flip(made, numbers[0]) if reverse else made

    return scan


# onnx.reference refuses an axis that is a list of one, which onnxruntime and all devices take.
plain("CumProd", since=26)(_scan(np.multiply, 1))
plain("CumSum", since=11)(_scan(np.add, 0))
