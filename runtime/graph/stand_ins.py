"""Releasing the weights of a graph that is kept to be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from .dtype import DType
from .graph import Graph
from .sym_array import hint_of

__all__ = ["RELEASED_BYTES", "release_constants"]

RELEASED_BYTES = 16 * 1024  # smaller ones are not worth looking at

Array = np.ndarray[Any, Any]


def release_constants(graph: Graph) -> None:
    """Put stand-ins for the large constants of a graph and of its bodies.

    A stand-in has the same type and shape, is full of NaN (0 where there is none) and takes no
    memory. Strings stay. Other holders of an array keep it.
    """
    for value in graph.initializers.values():
        if value.constant is None:
            continue
        array = value.constant = hint_of(value.constant)  # what it is made of may be large
        if array.nbytes >= RELEASED_BYTES and array.dtype != object:
            value.constant = _stand_in(array)
    for node in graph.nodes:
        for body in node.bodies():
            release_constants(body)


def _stand_in(constant: Array) -> Array:
    content = np.nan if DType.of(constant.dtype) in _HAVE_NAN else 0
    return np.broadcast_to(np.array(content, constant.dtype), constant.shape)


_HAVE_NAN = frozenset(
    item for item in DType if item.is_floating and item is not DType.FLOAT4E2M1
) | {DType.COMPLEX64, DType.COMPLEX128}
