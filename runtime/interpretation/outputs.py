"""Results that share no memory with anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["detach_outputs"]

Array = np.ndarray[Any, Any]


def detach_outputs(outputs: Sequence[Any], inputs: Iterable[Any]) -> list[Any]:
    """Copy every output that shares memory with an input, a constant or an earlier output.

    Constants are known by being read-only. What comes out is C-contiguous, writeable, and keeps no
    more memory alive than it needs; arrays that nothing else refers to are given as they are.
    """
    taken = {id(_owner(array)) for value in inputs for array in _arrays(value)}
    return [_detach(value, taken) for value in outputs]


def _arrays(value: Any) -> Iterable[Array]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)


def _owner(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _detach(value: Any, taken: set[int]) -> Any:
    if isinstance(value, list):
        return [_detach(item, taken) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    owner = _owner(value)
    is_alone = (
        value.flags.c_contiguous
        and value.flags.writeable
        and owner.flags.owndata
        and owner.nbytes == value.nbytes
        and id(owner) not in taken
    )
    if is_alone and type(value) is np.ndarray:
        taken.add(id(owner))
        return value
    return np.array(value, order="C", copy=True, subok=False)
