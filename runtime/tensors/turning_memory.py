"""Memory of states of which each run writes a part: two arrays that take turns."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["TurnedArray", "next_turn", "turned"]

Array = np.ndarray[Any, Any]
Index = tuple[Array, ...]


class TurnedArray(np.ndarray[Any, Any]):
    """A state with the memory of the one before, and the places at which they differ."""

    before: tuple[Array, Index] | None = None


def turned(made: Array, before: Array, index: Index) -> TurnedArray:
    """See an array as a state that differs at these places from the one before."""
    seen = made.view(TurnedArray)
    seen.before = before, index
    return seen


def next_turn(kept: Any, past: Array, *, is_own: bool) -> tuple[Array, int]:
    """Return an array with the content of ``past``, which may be written, and the bytes copied.

    ``kept`` is the state that ``past`` is the memory of. Where it is a request's own (``is_own``)
    and was made here, this is the memory of the state before it, which it has no more then.
    """
    if is_own and isinstance(kept, TurnedArray) and kept.before is not None:
        (spare, index), kept.before = kept.before, None
        rows = past[index]
        spare[index] = rows
        return spare, int(rows.nbytes)
    return past.copy(), past.nbytes
