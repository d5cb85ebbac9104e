"""What native_pools.c does, with numpy: the same operands and parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.graph import DType
from .native import view_at

__all__ = ["POOL_KERNELS"]

Array = np.ndarray[Any, Any]

_AVERAGE = 1


def pool(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Maxima or averages of windows over three axes, between outer and inner ones."""
    kind, element, _, outer, inner, *words = parameters
    axes = [words[start : start + 6] for start in (0, 6, 12)]
    lengths, places = [axis[0] for axis in axes], [axis[1] for axis in axes]
    dtype = DType(element)
    source = _array(data[0], dtype, (outer, *lengths, inner)).astype(np.float32)
    target = _array(data[-1], dtype, (outer, *places, inner))
    is_average = kind == _AVERAGE
    lowest = float(np.iinfo(dtype.numpy).min) if dtype.numpy.kind in "iu" else -math.inf
    join, start = (np.add, 0.0) if is_average else (np.maximum, lowest)
    for number, (length, count, size, stride, dilation, pad) in enumerate(axes, 1):
        made = np.full((*source.shape[:number], count, *source.shape[number + 1 :]), start)
        made = np.moveaxis(made.astype(np.float32), number, 0)
        given = np.moveaxis(source, number, 0)
        for tap in range(size):
            positions = np.arange(count) * stride - pad + tap * dilation
            seen = (positions >= 0) & (positions < length)
            made[seen] = join(made[seen], given[positions[seen]])
        source = np.moveaxis(made, 0, number)
    if is_average:
        counts = _array(data[1], DType.FLOAT32, (sum(places),))
        for number, part in enumerate(np.split(counts, np.cumsum(places)[:-1]), 1):
            source /= part.reshape(-1, *[1] * (4 - number))
    target[...] = source


def _array(address: int, dtype: DType, shape: Sequence[int]) -> Array:
    return view_at(address, math.prod(shape) * dtype.item_bytes).view(dtype.numpy).reshape(shape)


POOL_KERNELS: dict[str, Callable[[Sequence[int], Sequence[int]], None]] = {"pool": pool}
