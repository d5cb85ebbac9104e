"""Memory of states that grow: with room, so that most runs write only what is new."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plans.growing_states import shape_with_room

__all__ = ["in_room", "next_room", "view_of"]

Array = np.ndarray[Any, Any]

_LARGE_PAGE_BYTES = 2 << 20
"""Reading states of megabytes by small pages takes up to half as long again."""
_HUGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""None: the system has none to ask for."""


def in_room(array: Array, axis: int) -> Array:
    """Return the memory with room that a state lies in, flat; copied there if it lies otherwise."""
    room = array.base
    if (
        type(room) is np.ndarray
        and room.ndim == 1
        and room.dtype == array.dtype
        and room.size == math.prod(shape_with_room(array.shape, axis))
        and room.__array_interface__["data"][0] == array.__array_interface__["data"][0]
        and array.strides == view_of(room, array.shape, axis).strides
    ):
        return room
    room = _new_room(math.prod(shape_with_room(array.shape, axis)), array.dtype)
    view_of(room, array.shape, axis)[...] = array
    return room


def next_room(
    past: Array, before: Sequence[int], shape: Sequence[int], axis: int, *, is_own: bool
) -> Array:
    """Return the memory of a state of this shape, flat, of which ``past`` is the beginning.

    It is that of ``past``, a state of the shape ``before``, where that is the state of a request
    (``is_own``) and has the room; what is there stays. Else it is new.
    """
    whole = shape_with_room(shape, axis)
    if is_own and whole == shape_with_room(before, axis):
        return past
    return _new_room(math.prod(whole), past.dtype)


def _new_room(count: int, dtype: np.dtype[Any]) -> Array:
    """Make flat memory, in large pages if there is much of it."""
    size_bytes = count * dtype.itemsize
    if size_bytes < 2 * _LARGE_PAGE_BYTES or _HUGE is None:
        return np.empty(count, dtype)
    memory = mmap.mmap(-1, size_bytes + _LARGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(_HUGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % _LARGE_PAGE_BYTES
    return np.frombuffer(memory, dtype, count, start)


def view_of(room: Array, shape: Sequence[int], axis: int) -> Array:
    """See the state of this shape that a flat memory begins with."""
    seen: Array = room.reshape(shape_with_room(shape, axis))[
        (*[slice(None)] * axis, slice(shape[axis]))
    ]
    return seen
