"""States of fixed length of which each run writes a part, and where runs have written. Thread-safe.

Theory of operation. ``present = ScatterND(past, indices, updates)``, and TensorScatter, make all of
a state anew for a few rows. A request has two memories for such a state, which take turns: the one
that is not the state is the state before the last run, and differs from it only where that run has
written. So a run brings those places up to date, and writes its own. The state itself is not
written, and stays what it is if the run does not succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...executors.late_imports import late_imports
from ..graph import Graph, Node, Value

__all__ = ["Places", "WrittenState", "address_of", "rows_function", "written_states"]

Array = np.ndarray[Any, Any]
Index = tuple[Array, ...]


class Places:
    """Where runs of a plan have written, from the step that does to the end of its run."""

    def __init__(self) -> None:
        self._by_address: dict[int, Index] = {}

    def note(self, target: Array, index: Index) -> None:
        """Note where an array is going to be written."""
        self._by_address[address_of(target)] = index

    def take(self, target: Array) -> Index | None:
        """Return where an array was written, and forget it; None: not that it is known."""
        return self._by_address.pop(address_of(target), None)


class WrittenState(NamedTuple):
    """An input and the output that is the same but for what a run writes, by their places."""

    input: int
    output: int
    places: Places


def written_states(graph: Graph, pairs: Mapping[str, str]) -> list[WrittenState]:
    """List the states, of pairs input -> output, whose output is the input with updates."""
    outputs: Sequence[Value] = graph.outputs
    found = []
    for index, past in enumerate(graph.inputs if pairs else ()):
        made = [place for place, value in enumerate(outputs) if value.name == pairs.get(past.name)]
        if made and outputs.count(outputs[made[0]]) == 1 and _is_written(outputs[made[0]], past):
            found.append(WrittenState(index, made[0], Places()))
    return found


def _is_written(value: Value, past: Value) -> bool:
    node = value.producer
    if node is None or node.domain or node.inputs[0] is not past:
        return False
    if node.op == "TensorScatter":
        return True
    if node.op != "ScatterND":
        return False
    return node.attributes.get("reduction", "none") in ("none", b"none")


def rows_function(node: Node, places: Places) -> Callable[..., None]:
    """Return what writes rows into a state, and notes where: of its other inputs and the state."""
    with late_imports:
        from ..operators.indices.scattering import places_by_axis, sequence_places

    if node.op_type == "TensorScatter":
        axis = int(node.attributes.get("axis", -2))
        mode = str(node.attributes.get("mode", "linear"))

        def write_sequences(update: Array, *starts_and_target: Array) -> None:
            *starts, target = starts_and_target
            index = sequence_places(target, update, starts[0] if starts else None, axis, mode)
            _write(places, target, index, update)

        return write_sequences

    def write(indices: Array, updates: Array, target: Array) -> None:
        if updates.shape != (*indices.shape[:-1], *target.shape[indices.shape[-1] :]):
            raise ValueError(f"updates are {list(updates.shape)} at places {list(indices.shape)}")
        _write(places, target, places_by_axis(indices), updates)

    return write


def _write(places: Places, target: Array, index: tuple[Array, ...], updates: Array) -> None:
    places.note(target, index)
    target[index] = updates


def address_of(array: Array) -> int:
    """Return where the elements of an array begin."""
    address: int = array.__array_interface__["data"][0]
    return address
