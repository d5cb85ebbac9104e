"""Normalizations and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.graph import Node
from .registry import Array, kernel

__all__ = ["batch_normalization", "softmax"]


def _is_inference(node: Node) -> bool:
    return not node.attributes.get("training_mode")


@kernel("BatchNormalization", accepts=_is_inference)
def batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:
    """Normalize each channel by its given statistics. x: (N, C, ...), the others: (C,)."""
    shape = (-1, *[1] * (x.ndim - 2))
    centred = x - mean.reshape(shape)
    made = scale.reshape(shape) * centred / np.sqrt(variance.reshape(shape) + np.float32(epsilon))
    return np.asarray(made + bias.reshape(shape)).astype(x.dtype, copy=False)


@kernel("Softmax")
def softmax(x: Array, *, axis: int = -1) -> Any:
    """Return exp(x) over its sum along an axis."""
    if not x.size:
        return x.copy()
    made = np.exp(x - x.max(axis=axis, keepdims=True))
    made /= made.sum(axis=axis, keepdims=True)
    return made
