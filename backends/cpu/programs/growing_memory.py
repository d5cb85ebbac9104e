"""Memory of states that grow: with room, so that most runs write only what is new."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["behind", "outermost"]

Array = np.ndarray[Any, Any]

FEWEST_ROWS = 32
"""Room for so many at least, so that short states are not copied every few steps."""


def outermost(array: Array, axis: int) -> Array:
    """See an array with this axis first, in C order; copied only if it lies otherwise."""
    return np.require(np.moveaxis(array, axis, 0), requirements=["C", "A"])


def behind(past: Array, shape: Sequence[int], axis: int, *, is_own: bool) -> Array:
    """Make the memory of a state of this shape, the axis first, of which ``past`` is the beginning.

    It begins with the memory of ``past`` where that is the state of a request (``is_own``) and
    was made here with room for more; what is there stays. Else it is new, with room.
    """
    rows = [shape[axis], *shape[:axis], *shape[axis + 1 :]]
    count, room = math.prod(rows), past.base
    has_room = (
        is_own
        and type(room) is np.ndarray
        and room.ndim == 1
        and room.dtype == past.dtype
        and room.size >= count
        and room.__array_interface__["data"] == past.__array_interface__["data"]
    )
    if not has_room or room is None:
        more = max(count // 2, FEWEST_ROWS * math.prod(rows[1:]))
        room = np.empty(count + more, past.dtype)
    made: Array = room[:count].reshape(rows)
    return made
