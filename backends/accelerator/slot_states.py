"""A run's states that grow: the block that each is written to, and what has to be moved there.

A state whose block has room behind it is written there by the next run of its request. Any other
is moved into a block of the run's own, by one of the plan's launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...runtime.runs.bindings import Bindings
from ...runtime.tensors.tensor import Port
from .memory.bound_plan import BoundPlan
from .memory.kept_blocks import KeptBlock
from .memory.kept_output import KeptOutput
from .operand import Buffer
from .plan import Growth, Launch
from .queues.driver import AdoptedArray, Memory

__all__ = ["PlacedStates", "SlotStates", "StateNetwork"]


class StateNetwork(Protocol):
    """What the states of a slot ask of its network."""

    model_inputs: tuple[Port, ...]
    model_outputs: tuple[Port, ...]


@dataclass
class PlacedStates:
    """Where the states of a run lie, and which launches of its plan do nothing for it."""

    blocks: dict[str, KeptBlock] = field(default_factory=dict)
    """By output."""
    there: dict[Buffer, Memory] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    """Identities of launches."""
    moved_bytes: int = 0


class SlotStates:
    """Places the states of one network's runs. It keeps nothing of a run, so is thread-safe."""

    def __init__(self, network: StateNetwork) -> None:
        self._network = network

    def staying(self, bound: BoundPlan, bindings: Bindings) -> dict[str, KeptBlock]:
        """Return the blocks of states that the run writes behind, by output."""
        found = {}
        for growth, given in self._states(bound, bindings):
            if bindings.has_own_states and _has_room(given, growth):
                assert given is not None
                found[self._network.model_outputs[growth.output].name] = given.block
        return found

    def place(
        self, bound: BoundPlan, bindings: Bindings, blocks: Mapping[str, KeptBlock]
    ) -> PlacedStates:
        """Place the states of a run; ``blocks`` are its own, for those that do not stay."""
        placed = PlacedStates(self.staying(bound, bindings))
        for growth, given in self._states(bound, bindings):
            name = self._network.model_outputs[growth.output].name
            if given is not None:
                placed.there[bound.plan.inputs[growth.input].buffer] = given.block.memory
            used: Launch | None = None
            if name not in placed.blocks:
                placed.blocks[name] = blocks[name]
                used = growth.from_dense if given is None else growth.from_room
                placed.moved_bytes += growth.moved_bytes
            placed.there[bound.plan.outputs[growth.output].buffer] = placed.blocks[name].memory
            placed.skipped |= {id(growth.from_dense), id(growth.from_room)} - {id(used)}
        return placed

    def _states(
        self, bound: BoundPlan, bindings: Bindings
    ) -> Iterator[tuple[Growth, KeptOutput | None]]:
        """List the states, each with what the run is given if that lies in memory with room."""
        for growth in bound.plan.growing:
            name = self._network.model_inputs[growth.input].name
            given = bindings.inputs[name]
            kept = given.given if isinstance(given, AdoptedArray) else None
            is_roomed = isinstance(kept, KeptOutput) and kept.room == growth.given_room
            yield growth, kept if is_roomed else None


def _has_room(given: KeptOutput | None, growth: Growth) -> bool:
    return given is not None and given.may_grow and given.room == growth.room
