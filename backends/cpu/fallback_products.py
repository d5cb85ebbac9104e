"""What native_products.c does, with numpy: the same operands and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .native import view_at

__all__ = ["PRODUCT_KERNELS"]


def small_product(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Multiply two matrices, add a bias and cut off below zero, as far as asked for."""
    rows, inner, columns, has_bias, is_rectified = parameters

    def floats(address: int, *shape: int) -> np.ndarray:
        return view_at(address, 4 * int(np.prod(shape))).view(np.float32).reshape(shape)

    with np.errstate(all="ignore"):
        made = floats(data[0], rows, inner) @ floats(data[1], inner, columns)
        if has_bias:
            made += floats(data[2], columns)
        if is_rectified:
            np.maximum(made, 0, out=made)
    floats(data[-1], rows, columns)[...] = made


PRODUCT_KERNELS: dict[str, Callable[[Sequence[int], Sequence[int]], None]] = {
    "small_product": small_product,
}
