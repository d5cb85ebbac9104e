"""States that a run writes into memory that its request has: behind what is there, or in turns.

``present = Concat(past, new)`` writes ``new`` into room behind ``past``, and a write of rows into a
state of fixed length goes into the memory of the state before. Which nodes do so is settled with
the plan; where, by what a run finds its state in. A run without states of its own computes the
nodes as any other. The state itself is never written, so a run that fails leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..graph import Graph, Node
from ..lowering.growing_states import JoinedState, growing_states, shape_with_room
from ..lowering.strides import row_major
from ..lowering.written_states import Places, rows_function, written_states
from ..operators import Operator
from ..tensors.roomed_array import RoomedArray, new_room
from ..tensors.turning_memory import next_turn, turned

__all__ = ["StateMemory", "StatePlan", "plan_states", "with_memory"]

Array = np.ndarray[Any, Any]


class StateMemory(Protocol):
    """One state in one run: how its node is computed, and what the request keeps of that."""

    copied_bytes: int
    """How much of the state was copied to other memory."""

    def make(self, operator: Operator, given: Sequence[Any]) -> tuple[Any, ...]:
        """Compute the node from its inputs; ``operator`` computes it in any memory."""

    def kept(self, made: Array) -> Array:
        """Return the output with its memory, for the next run."""


class StatePlan(NamedTuple):
    """A state of a plan that one node writes in place; inputs and outputs by their places."""

    input: int
    output: int
    node: Node
    begin: Callable[[Array], StateMemory]
    """Make the memory of a run from what the request has kept."""


def plan_states(graph: Graph, pairs: Mapping[str, str]) -> list[StatePlan]:
    """List the states, of pairs input -> output, that runs need not make anew. Pure."""
    found = []
    for item in growing_states(graph, pairs):
        node = item.joined.producer
        assert node is not None
        found.append(StatePlan(item.state.input, item.state.output, node, _growth_of(item)))
    for state in written_states(graph, pairs):
        node = graph.outputs[state.output].producer
        assert node is not None
        found.append(StatePlan(state.input, state.output, node, _turn_of(node)))
    return found


def with_memory(operator: Operator) -> Operator:
    """Make of a node's operator one that is given the memory of a state, or None, first."""

    def compute(memory: StateMemory | None, *given: Any) -> tuple[Any, ...]:
        return operator(*given) if memory is None else memory.make(operator, given)

    return compute


def _growth_of(item: JoinedState) -> Callable[[Array], StateMemory]:
    return lambda kept: _Growth(item, kept)


def _turn_of(node: Node) -> Callable[[Array], StateMemory]:
    return lambda kept: _Turn(node, kept)


class _Growth:
    """A join whose result lies in memory with room."""

    def __init__(self, item: JoinedState, kept: Array) -> None:
        self._item, self._past = item, kept
        self._memory: Array | None = None
        self._first_row = 0
        self._strides: tuple[int, ...] = ()
        self.copied_bytes = 0

    def make(self, operator: Operator, given: Sequence[Any]) -> tuple[Any, ...]:
        parts, axis = [np.asarray(part) for part in given], self._item.state.axis
        first = parts[0]
        if any(not _follows(part, first, axis) for part in parts):
            return operator(*given)
        rows = sum(part.shape[axis] for part in parts)
        shape = (*first.shape[:axis], rows, *first.shape[axis + 1 :])
        is_window = self._item.state.is_window
        room = shape_with_room(self._past.shape if is_window else shape, axis, is_window=is_window)
        item_bytes = first.dtype.itemsize
        self._strides = tuple(stride * item_bytes for stride in row_major(room))
        memory, begin = self._find(room, rows, item_bytes)
        is_moved = memory is None
        if memory is None:
            memory = new_room(int(np.prod(room, dtype=np.int64)) * item_bytes)
        self._memory, self._first_row = memory, begin
        place = begin * self._strides[axis]
        made = np.ndarray(shape, first.dtype, memory, place, self._strides)
        index: list[slice] = [slice(None)] * len(shape)
        end = 0
        for number, part in enumerate(parts):
            end += part.shape[axis]
            if number or is_moved:
                index[axis] = slice(end - part.shape[axis], end)
                made[tuple(index)] = part
        self.copied_bytes += first.nbytes if is_moved else 0
        return (made,)

    def _find(self, room: tuple[int, ...], rows: int, item_bytes: int) -> tuple[Array | None, int]:
        """Return the memory of the state and the row there that the join begins with, if it fits.

        None and 0 where it has to move.
        """
        past, axis = self._past, self._item.state.axis
        if type(past) is not RoomedArray or past.memory is None or past.strides != self._strides:
            return None, 0
        size_bytes = int(np.prod(room, dtype=np.int64)) * item_bytes
        stride = self._strides[axis]
        begin = (past.start // stride if stride else 0) + self._item.lead
        fits = past.memory.nbytes == size_bytes and begin + rows <= room[axis]
        return (past.memory, begin) if fits else (None, 0)

    def kept(self, made: Array) -> Array:
        if self._memory is None:
            return made
        begin = self._first_row + self._item.shift - self._item.lead
        start = begin * self._strides[self._item.state.axis]
        seen = RoomedArray(made.shape, made.dtype, self._memory, start, self._strides)
        seen.memory, seen.start = self._memory, start
        return seen


def _follows(part: Array, first: Array, axis: int) -> bool:
    """True if a part has the form of the first one, but for its length."""
    return (
        part.dtype == first.dtype
        and part.ndim == first.ndim
        and part.shape[:axis] == first.shape[:axis]
        and part.shape[axis + 1 :] == first.shape[axis + 1 :]
    )


class _Turn:
    """A write of rows into the memory of the state before."""

    def __init__(self, node: Node, kept: Array) -> None:
        self._node, self._kept = node, kept
        self._before: tuple[Array, tuple[Array, ...]] | None = None
        self.copied_bytes = 0

    def make(self, operator: Operator, given: Sequence[Any]) -> tuple[Any, ...]:
        past, places = self._kept.view(np.ndarray), Places()
        made, self.copied_bytes = next_turn(self._kept, past, is_own=True)
        rows_function(self._node, places)(*[item for item in given[1:] if item is not None], made)
        index = places.take(made)
        if index is not None:
            self._before = past, index
        return (made,)

    def kept(self, made: Array) -> Array:
        return made if self._before is None else turned(made, *self._before)
