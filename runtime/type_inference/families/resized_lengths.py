"""The lengths that a Resize gives its output."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Dim, Shape, shape_text
from ..contradiction import ContradictionError
from ..dims import MOST_LENGTH

__all__ = ["resized_by_scales", "resized_to_sizes"]


def resized_by_scales(dims: Shape, scales: Sequence[float]) -> Shape:
    """Multiply each length by its scale, in float32, and round down.

    Raises ContradictionError for a scale that is not finite or not above zero, and if a product is
    larger than any length.
    """
    found: list[Dim] = []
    for dim, scale in zip(dims, scales, strict=True):
        if not 0 < scale < math.inf:
            raise ContradictionError(f"its scales {list(scales)} have to be above zero and finite")
        if isinstance(dim, int):
            with np.errstate(over="ignore", invalid="ignore"):
                length = np.float32(dim) * np.float32(scale)
            if not length < MOST_LENGTH:
                raise ContradictionError(f"a length of {dim} cannot become {scale} times as long")
            found.append(math.floor(length))
        else:
            found.append(dim if scale == 1 else None)
    return tuple(found)


def resized_to_sizes(dims: Shape, sizes: Shape, policy: str) -> Shape:
    """Return the sizes, or those that keep the proportions.

    "not_larger" and "not_smaller" scale all lengths by the least and the greatest of the factors
    that the sizes stand for, and round halves up. Raises ContradictionError for sizes that are no
    lengths, and for a policy that ONNX lacks.
    """
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ContradictionError(f"its sizes {shape_text(sizes)} are no lengths")
    for dim, size in zip(dims, sizes, strict=True):
        if isinstance(dim, int) and isinstance(size, int) and (dim == 0) != (size == 0):
            raise ContradictionError(f"a length of {dim} cannot be resized to {size}")
    if policy == "stretch":
        return sizes
    if policy not in ("not_larger", "not_smaller"):
        raise ContradictionError(f"its keep_aspect_ratio_policy is {policy!r}, which ONNX lacks")
    factors, known = [], []
    for dim, size in zip(dims, sizes, strict=True):
        if not isinstance(dim, int) or not isinstance(size, int) or dim == 0:
            return (None,) * len(dims)
        known.append(dim)
        factors.append(np.float32(size) / np.float32(dim))
    factor = min(factors) if policy == "not_larger" else max(factors)
    return tuple(math.floor(float(np.float32(dim) * factor) + 0.5) for dim in known)
