"""A compiled plan: what is run, where it lies in memory, and which weights it needs packed."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....executors.cached_property import cached_property
from ....runtime.graph import DType, Graph
from ....runtime.graph.mapped_file import Reading, is_mapped
from ....runtime.graph.stand_ins import release_constants
from ....runtime.lowering.growing_states import GrowingState
from ....runtime.lowering.written_states import WrittenState
from ....runtime.tensors.output_pool import POOLED_BYTES
from ..onednn.bindings import Engine
from .operand_layout import Buffer, Layout, Operand
from .packed_weights import PackedWeight
from .rooms import Room
from .step_table import ReplayedSteps, StepTable
from .steps import NativeStep, NumpyStep, Step

__all__ = [
    "Description",
    "Form",
    "Plan",
]

Array = np.ndarray[Any, Any]

Form = tuple[tuple[int, ...], np.dtype[Any]]
"""The shape and the numpy type of an array."""


_OF_BITS = frozenset({"half_matmul", "packed_matmul", "packed_matmul_int8", "unpack_weights"})
"""Native kernels that read packed weights."""

_STEP_BYTES = 8 << 10
"""Measured: 492 KiB for the 60 steps of MiniLM, programs of one stream included."""


class Description:
    """What a plan was made of, for diagnoses: ``make`` returns graph and layouts.

    ``float_dtype`` is what float32 values are held in between steps. ``name`` is what ``str``
    makes the id of, which may be no earlier than that.
    """

    def __init__(
        self,
        make: Callable[[], tuple[Graph, Mapping[str, Layout]]],
        float_dtype: DType,
        name: object,
    ) -> None:
        self._make, self.float_dtype, self.name = make, float_dtype, name

    @property
    def id(self) -> str:
        """A name of the graph and of what the plan is for, the same from run to run."""
        return str(self.name)

    @classmethod
    def of(
        cls, graph: Graph, layouts: Mapping[str, Layout], float_dtype: DType, name: object
    ) -> Description:
        """Describe by what is there already."""
        description = cls(lambda: (graph, layouts), float_dtype, name)
        vars(description)["_made"] = graph, layouts
        return description

    def release(self) -> None:
        """Free the large constants of the graph, if it was made; it shows stand-ins then."""
        if "_made" in vars(self):
            release_constants(self.graph)

    @cached_property
    def _made(self) -> tuple[Graph, Mapping[str, Layout]]:
        return self._make()

    @property
    def graph(self) -> Graph:
        """The graph that is executed."""
        return self._made[0]

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """Value name -> the layout in which its producer leaves it."""
        return self._made[1]


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that does not change from run to run. Any number of streams may run it.

    ``offsets`` places the arena's buffers; ``inputs`` and ``outputs`` are the run's own arrays, in
    the order of the network's ports, as (shape, dtype).
    """

    engine: Engine
    description: Description
    steps: Sequence[Step]
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    output_names: Sequence[str]
    offsets: Mapping[Buffer, int]
    arena_bytes: int
    thread_count: int
    weights: Sequence[PackedWeight] = ()
    growing: Sequence[GrowingState] = ()
    """States whose arrays lie in memory with room along the growing axis."""
    in_place: Collection[GrowingState] = ()
    """Those of them whose output may lie in the memory of the input: no step writes there."""
    written: Sequence[WrittenState] = ()
    """States whose outputs hold what the inputs do before the first step; steps write the rest."""
    made_of: weakref.ref[Plan] | None = None
    """The plan for the network's own team, of one that was made for a smaller team: its holder."""
    resized: dict[int, Plan | None] = field(default_factory=dict)
    """The same for smaller teams, by thread count: made when one is wanted, None where it cannot
    be. Set by the compile thread, read by streams."""
    bound: weakref.WeakValueDictionary[Any, Any] = field(
        default_factory=weakref.WeakValueDictionary, init=False
    )
    """Programs by stream, of this plan or of one that is alike and has the same dictionary."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_packed: list[bool] = field(default_factory=list)

    @property
    def id(self) -> str:
        """A name of the graph and of what the plan is for: the same from run to run."""
        return self.description.id

    @property
    def name(self) -> object:
        """What ``str`` makes the id of, which may be no earlier than that."""
        return self.description.name

    @property
    def graph(self) -> Graph:
        """The graph that is executed."""
        return self.description.graph

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """Value name -> the layout in which its producer leaves it."""
        return self.description.layouts

    @cached_property
    def table(self) -> StepTable:
        """The words that the native code runs by, but for addresses."""
        if isinstance(self.steps, ReplayedSteps):
            return self.steps.table
        return StepTable.of(self.steps, self.inputs, self.outputs, self.engine)

    @cached_property
    def bit_weights_bytes(self) -> int:
        """Bytes of weights of 4 or 8 bits that steps read as they are, with scales and biases."""
        found = {
            operand.buffer
            for step in self.steps
            if isinstance(step, NativeStep) and step.kernel in _OF_BITS
            for operand in step.operands
            if operand.buffer.kind == "constant"
        }
        return sum(buffer.size_bytes for buffer in found)

    @cached_property
    def size_bytes(self) -> int:
        """What the plan takes in memory, about: its own constants, and each step 8 KiB.

        Half a step is oneDNN's code. Weights and arenas, which plans share, do not count.
        """
        own = (buffer.size_bytes for buffer in self.table.buffers if buffer.is_of_plan)
        return len(self.steps) * _STEP_BYTES + sum(own)

    @cached_property
    def output_forms(self) -> tuple[Form, ...]:
        """What each output's array is like, in order."""
        return tuple((operand.shape, operand.dtype.numpy) for operand in self.outputs)

    @cached_property
    def made_forms(self) -> tuple[Form, ...]:
        """The same of what a run makes anew; empty for states, which get memory of their own."""
        kept = {state.output for state in self.growing}
        kept.update(state.output for state in self.written)
        return tuple(
            ((0,), form[1]) if index in kept else form
            for index, form in enumerate(self.output_forms)
        )

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        """The memory of each state that grows."""
        return tuple(
            Room(
                state,
                self.inputs[state.input],
                self.outputs[state.output],
                may_stay=state in self.in_place,
            )
            for state in self.growing
        )

    @cached_property
    def has_large_outputs(self) -> bool:
        """True if it pays to take the memory of what a run makes anew from a pool."""
        sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in self.made_forms)
        return any(size_bytes >= POOLED_BYTES for size_bytes in sizes)

    @cached_property
    def runs_user_code(self) -> bool:
        """True if a step calls a function that users have brought."""
        nodes = [step.node for step in self.steps if isinstance(step, NumpyStep)]
        return any(node is not None and node.user_kernel is not None for node in nodes)

    @cached_property
    def can_shrink(self) -> bool:
        """True if fewer threads could run it, or do already."""
        return self.thread_count > 1 or self.made_of is not None

    @property
    def is_packed(self) -> bool:
        """True once its weights are."""
        return bool(self._is_packed) or all(
            weight.buffer.array is not None for weight in self.weights
        )

    def pack(self) -> None:
        """Pack the weights that no other plan has packed yet; on a stream's own thread."""
        if self._is_packed:
            return
        with self._lock:
            if not self._is_packed:
                sources = [weight.source for weight in self.weights]
                mapped = [source for source in sources if source is not None and is_mapped(source)]
                reading = Reading(max([source.nbytes for source in mapped], default=0))
                with self.engine.with_threads(self.thread_count):
                    for weight in self.weights:
                        weight.pack(self.engine, reading)
                self._is_packed.append(True)

    def release_graph(self) -> None:
        """Free the large constants of the graph, which is there to be looked at."""
        self.description.release()

    def __repr__(self) -> str:
        return (
            f"<Plan {self.id} of {self.graph.name!r}: {len(self.steps)} steps, arena of "
            f"{self.arena_bytes} bytes>"
        )
