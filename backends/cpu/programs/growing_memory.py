"""Memory of states that grow or move on: with room, so that most runs write only what is new."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from ..plans.growing_states import Room

__all__ = ["RoomedArray", "in_room", "next_room", "view_of"]

Array = np.ndarray[Any, Any]

_LARGE_PAGE_BYTES = 2 << 20
"""Reading states of megabytes by small pages takes up to half as long again."""
_HUGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""None: the system has none to ask for."""


class RoomedArray(np.ndarray[Any, Any]):
    """A state that knows the memory with room that it lies in, and where it begins there.

    Views and copies of it know nothing: they begin elsewhere, or lie in other memory.
    """

    memory: Array | None = None
    start = 0


def in_room(array: Array, room: Room) -> tuple[Array, int]:
    """Return the memory with room that a state lies in, as bytes, and where the state begins there.

    It is copied to the beginning of new memory if it lies otherwise.
    """
    if type(array) is RoomedArray and array.strides == room.given_strides:
        known, start = array.memory, array.start
        if (
            known is not None
            and known.nbytes == room.given_bytes
            and start <= room.given_bytes - room.read_bytes
        ):
            return known, start
    memory = _new_room(room.given_bytes)
    np.ndarray(room.given_shape, room.dtype, memory, 0, room.given_strides)[...] = array
    return memory, 0


def next_room(memory: Array, start: int, room: Room, *, is_own: bool) -> tuple[Array, int]:
    """Return the memory in which the output is written, and where the input would begin there.

    It is that of the input, which stays where it is, if that is the state of a request (``is_own``)
    and there are rows free behind it. Else it is new.
    """
    if is_own and room.may_stay and start + room.shift <= room.last_start:
        return memory, start
    return _new_room(room.size_bytes), 0


def view_of(memory: Array, start: int, room: Room) -> Array:
    """See the output of a run in its memory."""
    start += room.shift
    made = RoomedArray(room.shape, room.dtype, memory, start, room.strides)
    made.memory, made.start = memory, start
    return made


def _new_room(size_bytes: int) -> Array:
    """Make memory, in large pages if there is much of it."""
    if size_bytes < 2 * _LARGE_PAGE_BYTES or _HUGE is None:
        return np.empty(size_bytes, np.uint8)
    memory = mmap.mmap(-1, size_bytes + _LARGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(_HUGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % _LARGE_PAGE_BYTES
    return np.frombuffer(memory, np.uint8, size_bytes, start)
