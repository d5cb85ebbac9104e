"""A plan with addresses in one slot: what its kernels are given, and where its tensors lie.

Kernels have the slot's own memory as arguments. A run whose input is on the device already, or
whose output is to stay there, may have the kernels take that memory instead, so that nothing is
copied. A launch graph keeps the arguments that it was captured with: where there is one, such
inputs and outputs are copied on the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....executors.cached_property import cached_property
from ..launching.portions import FIRST_COUNT
from ..operand import Buffer, Operand
from ..plan import Launch, LaunchArgument, Plan
from ..queues.driver import Argument, Bytes, Kernel, LaunchGraph, Memory, Queue

__all__ = ["BoundInput", "BoundLaunch", "BoundOutput", "BoundPlan", "Staged"]


@dataclass(frozen=True)
class Staged:
    """Host memory that the device copies from or to: ``array`` and ``data`` are the same bytes."""

    array: np.ndarray[Any, Any]
    data: Bytes


@dataclass(frozen=True)
class BoundInput:
    """An input's place, on the host and on the device."""

    operand: Operand
    memory: Memory
    staged: Staged


@dataclass(frozen=True)
class BoundOutput:
    """An output's place on the device; ``staged`` is None where it is not staged."""

    operand: Operand
    memory: Memory
    staged: Staged | None


@dataclass(frozen=True)
class BoundLaunch:
    """A kernel object with its arguments set; ``arguments`` are those with the slot's memory."""

    launch: Launch
    kernel: Kernel
    arguments: Sequence[Argument]


@dataclass(eq=False)
class BoundPlan:
    """A plan with addresses in one slot."""

    plan: Plan
    inputs: Sequence[BoundInput]
    outputs: Sequence[BoundOutput]
    launches: Sequence[BoundLaunch]
    output_bytes: int
    """How much all outputs take together."""
    input_bytes: int = 0
    """How much all inputs take together."""
    launch_graph: LaunchGraph | None = None
    """Replays all launches at once; without one, they are enqueued one by one."""
    round_trip: LaunchGraph | None = None
    """Copies from and to staging memory, too."""
    may_capture_launches: bool = False
    """True if its launches may be captured yet, which were with its copies."""
    portion_count: int = FIRST_COUNT
    """How many launches go to the device at once, where they are enqueued one by one."""
    exchanged: Collection[Buffer] = frozenset()
    """What kernels have other memory for than the slot's, which may be gone."""

    @property
    def is_captured(self) -> bool:
        """True if a run of it replays anything."""
        return self.launch_graph is not None or self.round_trip is not None

    @cached_property
    def exchangeable(self) -> frozenset[Buffer]:
        """The buffers of inputs and outputs that may lie elsewhere than in the slot, in a run.

        Each is all of one input, or of one output, and nothing else.
        """
        operands = [place.operand for place in self.inputs]
        operands += [place.operand for place in self.outputs]
        counts = Counter(operand.buffer for operand in operands)
        return frozenset(
            operand.buffer
            for operand in operands
            if counts[operand.buffer] == 1
            and operand.buffer.kind == "arena"
            and operand.size_bytes == operand.buffer.size_bytes
        )

    def exchange(self, memories: Mapping[Buffer, Memory]) -> None:
        """Have the kernels take this memory for these buffers, and the slot's for all others.

        For what is enqueued from here on. Each has at least the size of its buffer.
        """
        changed = {*self.exchanged, *memories}
        self.exchanged = frozenset(memories)
        for item in self.launches if changed else ():
            if not changed.isdisjoint([operand.buffer for operand in item.launch.operands]):
                pairs = zip(item.launch.arguments, item.arguments, strict=True)
                item.kernel.set_arguments([_exchanged(*pair, memories) for pair in pairs])

    def enqueue_launches(self, queue: Queue) -> None:
        """Enqueue what computes its outputs."""
        for item in self.launches:
            queue.launch(item.kernel, item.launch.global_size, item.launch.local_size)

    def enqueue_round_trip(self, queue: Queue) -> None:
        """Enqueue its uploads, launches and downloads."""
        for place in self.inputs:
            if place.staged.data.size:
                queue.write(place.memory, place.staged.data)
        self.enqueue_launches(queue)
        for result in self.outputs:
            if result.staged is not None and result.staged.data.size:
                queue.read(result.staged.data, result.memory)


def _exchanged(
    given: LaunchArgument, argument: Argument, memories: Mapping[Buffer, Memory]
) -> Argument:
    """Return what a kernel gets: the argument, or the same place in other memory."""
    if not isinstance(given, Operand) or given.buffer not in memories:
        return argument
    memory, start = memories[given.buffer], given.offset_bytes
    return memory.part(start, memory.size_bytes - start) if start else memory
