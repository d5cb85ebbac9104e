"""Plain operators that normalise."""

from __future__ import annotations

import math

import numpy as np

from ..plain_operators import Array, plain

__all__ = ["layer_normalization", "rms_normalization"]

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

    Those are float32, as ONNX's ``stash_type`` says, and of halves what is scaled is rounded.
    """
    axes = tuple(range(axis % max(1, x.ndim), x.ndim))
    wide = x if x.dtype.itemsize > 2 else x.astype(np.float32)
    mean = _mean(wide, axes)
    centred = wide - mean
    factor = np.reciprocal(np.sqrt(_mean(centred * centred, axes) + wide.dtype.type(epsilon)))
    made = (centred * factor).astype(x.dtype, copy=False) * scale
    if bias is not None:
        made = made + bias
    return made, mean.astype(np.float32, copy=False), factor.astype(np.float32, copy=False)


@plain(
    "RMSNormalization",
    since=23,
    accepts=lambda node: node.attributes.get("stash_type", _FLOAT) == _FLOAT,
)
def rms_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = _FLOAT
) -> Array:
    """Divide by the root of the mean square over the axes from ``axis`` on, in float32 at least.

    The result has the type of the scale.
    """
    axes = tuple(range(axis % max(1, x.ndim), x.ndim))
    wide = x if x.dtype.itemsize > 2 else x.astype(np.float32)
    root = np.sqrt(_mean(wide * wide, axes) + wide.dtype.type(epsilon))
    return np.asarray((wide * np.reciprocal(root)).astype(scale.dtype, copy=False) * scale)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """Take the mean, as numpy's does; of nothing it is not a number, without a warning."""
    count = math.prod([x.shape[axis] for axis in axes])
    return np.asarray(np.sum(x, axis=axes, keepdims=True, dtype=x.dtype) / count)
