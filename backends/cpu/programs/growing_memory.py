"""Memory of states that grow or move on: with room, so that most runs write only what is new."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.tensors.roomed_array import RoomedArray, new_room
from ..plans.rooms import Room

__all__ = ["in_room", "next_room", "view_of"]

Array = np.ndarray[Any, Any]


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
    memory = new_room(room.given_bytes)
    np.ndarray(room.given_shape, room.dtype, memory, 0, room.given_strides)[...] = array
    return memory, 0


def next_room(memory: Array, start: int, room: Room, *, is_own: bool) -> tuple[Array, int]:
    """Return the memory in which the output is written, and where the input would begin there.

    It is that of the input, which stays where it is, if that is the state of a request (``is_own``)
    and there are rows free behind it. Else it is new.
    """
    if is_own and room.may_stay and start + room.shift <= room.last_start:
        return memory, start
    return new_room(room.size_bytes), 0


def view_of(memory: Array, start: int, room: Room) -> Array:
    """See the output of a run in its memory."""
    start += room.shift
    made = RoomedArray(room.shape, room.dtype, memory, start, room.strides)
    made.memory, made.start = memory, start
    return made
