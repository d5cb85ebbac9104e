"""Matmuls."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import Array, kernel

__all__ = ["gemm", "matmul"]


@kernel("MatMul")
def matmul(a: Array, b: Array) -> Any:
    """Multiply as numpy.matmul does: the last two axes, the others broadcast."""
    if a.dtype != b.dtype:
        raise TypeError(f"both inputs need one element type, and have {a.dtype} and {b.dtype}")
    if a.ndim <= 2 and b.ndim <= 2:
        return np.dot(a, b)
    return np.matmul(a, b).astype(a.dtype, copy=False)  # of bfloat16 numpy makes float32


@kernel("Gemm")
def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """Return alpha * a @ b + beta * c, with a and b transposed on request; c is broadcast."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"a and b need two axes each, and have shapes {a.shape} and {b.shape}")
    made = np.dot(a.T if transA else a, b.T if transB else b)
    # float32 is the type of the attributes: a product with 1 changes nothing in it, or in float64.
    is_wide = a.dtype == np.float32 or a.dtype == np.float64
    if alpha != 1.0 or not is_wide:
        made = made * np.float32(alpha)
    if c is not None and beta != 0.0:
        made = made + (c if beta == 1.0 and is_wide else c * np.float32(beta))
    return np.asarray(made).astype(a.dtype, copy=False)
