"""Plain operators that normalise."""

from __future__ import annotations

import numpy as np

from ..plain_operators import Array, plain

__all__ = ["layer_normalization"]

_FLOAT = 1
"""ONNX's number of float32, which statistics are computed in."""


@plain(
    "LayerNormalization",
    since=17,
    accepts=lambda node: node.attributes.get("stash_type", _FLOAT) == _FLOAT,
)
def layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = _FLOAT,
) -> tuple[Array, Array, Array]:
    """Normalise over the axes from ``axis`` on; give the means and inverse deviations, too.

    Those of halves are float32, as ONNX's ``stash_type`` says, and what is scaled is rounded.
    """
    axes = tuple(range(axis % max(1, x.ndim), x.ndim))
    wide = x if x.dtype.itemsize > 2 else x.astype(np.float32)
    mean = np.mean(wide, axis=axes, keepdims=True, dtype=wide.dtype)
    centred = wide - mean
    variance = np.mean(centred * centred, axis=axes, keepdims=True, dtype=wide.dtype)
    factor = np.reciprocal(np.sqrt(variance + wide.dtype.type(epsilon)))
    made = (centred * factor).astype(x.dtype, copy=False) * scale
    return made if bias is None else made + bias, mean, factor
