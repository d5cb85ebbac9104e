"""PlanBuilder: what kernels lower nodes with; it places values, notes launches, plans the memory.

Nodes are lowered in topological order. Every value lies dense and row-major in one operand; a
Reshape defines a value as a view of another one's, and what takes addresses alone can be given a
part of one. When all nodes are lowered, lifetimes are known launch by launch, and the memory plan
gives every buffer its place in a slot's arena. Inputs live there from the first launch on, because
they are uploaded before it, and outputs to the end, from where they are downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ...errors import GraphError, UnsupportedOpError
from ...runtime.graph import DType, Graph, Model, Node, Value
from ...runtime.lowering.growing_states import JoinedState, growing_states, shape_with_room
from ...runtime.lowering.node_operands import Lowering, place_buffers
from .elementwise.fused_launch import fused_launch
from .elementwise.fused_step import FusedStep
from .launching.kernel_source import KernelSource
from .launching.reach import INT_LIMIT, Reach, find_overrun, whole
from .launching.strided_copy import strided_copy
from .memory.weight_store import WeightStore
from .operand import Buffer, Operand, StridedOperand
from .plan import Growth, Launch, LaunchArgument, Plan
from .precision import F32, Precision
from .queues.driver import DeviceFacts
from .queues.library_operation import LibraryOperation

__all__ = ["PlanBuilder"]

Array = np.ndarray[Any, Any]
NO_STATES: Mapping[str, str] = MappingProxyType({})


class PlanBuilder(Lowering):
    """Builds one plan of a specialised graph; not thread-safe.

    ``states`` are pairs input -> output that a request keeps.

    ``precision`` says what float32 values are held in between launches; ``refused`` are libraries
    and names of nodes that they do not plan; ``states`` are pairs input -> output that a request
    keeps.
    """

    def __init__(
        self,
        model: Model,
        weights: WeightStore,
        *,
        device: str,
        facts: DeviceFacts,
        precision: Precision = F32,
        refused: Collection[tuple[str, str]] = (),
        states: Mapping[str, str] = NO_STATES,
    ) -> None:
        super().__init__(model, device, precision.held)
        self._joins = {
            item.joined: item
            for item in growing_states(model.graph, states)
            if self._can_grow(item)
        }
        self._growing: list[Growth] = []
        self._strided: dict[Value, StridedOperand] = {}
        self.precision = precision
        self.work_group_size = facts.work_group_size
        """The most work-items of one group on this device."""
        self.moves_words = facts.moves_words
        """True if a work-item should move several elements as one word."""
        self._libraries, self._refused = facts.libraries, refused
        self._weights, self._align_bytes = weights, facts.align_bytes
        self._launches: list[Launch] = []
        self._operands: dict[Value, Operand] = {}
        self._constants: dict[Buffer, None] = {}

    def build(self, lower: Callable[[Node, PlanBuilder], None]) -> Plan:
        """Lower all nodes and return the plan."""
        graph = self.model.graph
        inputs = [self._add_input(value) for value in graph.inputs]
        for node in self._nodes():
            lower(node, self)
        outputs = [self._as_output(index, value) for index, value in enumerate(graph.outputs)]
        return self._finish(graph, inputs, outputs)

    def has_library(self, name: str) -> bool:
        """Return whether operations of a library can be called for the node that is lowered."""
        node = "" if self._node is None else self._node.name
        return name in self._libraries and (name, node) not in self._refused

    def operand(self, value: Value) -> Operand:
        """Return where a value lies, in its held type; constants are uploaded for it."""
        found, wanted = self._as_it_lies(value), self.held_dtype(value)
        if found.dtype is not wanted:
            found = self._operands[value] = self._cast(found, wanted)
        return found

    def own_operand(self, value: Value) -> Operand:
        """Return where a value lies in its own type, whatever it is held in."""
        found, wanted = self._as_it_lies(value), self.dtype(value)
        return found if found.dtype is wanted else self._cast(found, wanted)

    def scalar_or_operand(self, value: Value) -> Operand | float:
        """Return a float constant of one element as a number, anything else as it lies.

        For what reads operands in the types that they have: an input of the network lies in its own
        type, which may not be the held one.
        """
        array = value.constant
        is_number = array is not None and array.size == 1 and self.dtype(value) is DType.FLOAT32
        if is_number and array is not None:
            return float(array.reshape(-1)[0])
        return self._as_it_lies(value)

    def constant_operand(self, array: Array) -> Operand:
        """Return the place of an array that a kernel made; it is uploaded as it is."""
        return self._uploaded(array, DType.of(array.dtype))

    def derived(
        self,
        operation: str,
        sources: Sequence[Array],
        dtype: DType,
        compute: Callable[[], Array],
        shape: Sequence[int],
    ) -> Operand:
        """Return the place of what ``compute`` makes of constants, once for all plans.

        ``operation`` says in words what is done, with all its parameters; the shape is the
        result's.
        """
        buffer = self._weights.derived(operation, sources, dtype, compute)
        self._constants[buffer] = None
        return Operand(buffer, tuple(shape), dtype)

    def result(self, value: Value) -> Operand:
        """Make the place of a result: new memory in the arena, in its held type."""
        made = self.temporary(self.shape(value), self.held_dtype(value))
        return self.define(value, made)

    def define_constant(self, value: Value, array: Array) -> None:
        self.define(value, self.constant_operand(array))

    def define(self, value: Value, operand: Operand) -> Operand:
        """Say that a value lies in an operand, which may be another value's, seen anew.

        Raises GraphError for an operand of another shape, or of elements of another size.
        """
        self.expect_shape(value, operand.shape)
        kinds = (self.dtype(value), self.held_dtype(value))
        if operand.dtype.item_bytes not in {kind.item_bytes for kind in kinds}:
            raise self.contradiction(
                f"{value.name!r} is {kinds[0].label}, and lies in {operand.dtype.label}"
            )
        self._operands[value] = operand
        return operand

    def _can_grow(self, item: JoinedState) -> bool:
        """True if the join alone reads the state, which lies dense in some runs and not in others.

        It has to be held in the type that the request keeps.
        """
        past = self.model.graph.inputs[item.state.input]
        is_alone = len(past.uses) == 1 and not past.is_graph_output
        is_held = self.held_dtype(item.joined) is self.dtype(item.joined)
        return is_alone and is_held and not item.state.is_window

    def growing(self, value: Value) -> JoinedState | None:
        """Return the state that this join makes, if it goes on behind an input of the network."""
        return self._joins.get(value)

    @property
    def last_launch(self) -> Launch | None:
        """The one that was noted last."""
        return self._launches[-1] if self._launches else None

    def note_growth(self, growth: Growth) -> None:
        """Say that an output of the graph is a state in memory with room."""
        self._growing.append(growth)

    def strided(self, value: Value) -> StridedOperand | None:
        """Return how a value lies that is not dense; None for all others."""
        return self._strided.get(value)

    def define_strided(self, value: Value, lies: StridedOperand) -> None:
        """Say that a value lies in an operand, but not dense; ``operand`` gives a dense copy."""
        self.expect_shape(value, lies.shape)
        self._strided[value] = lies

    def view(self, operand: Operand, shape: Sequence[int]) -> Operand:
        """See the same elements in another shape; GraphError for one that has more or fewer."""
        if math.prod(shape) != operand.count or min(shape, default=0) < 0:
            raise self.contradiction(
                f"{list(operand.shape)} cannot be seen as {list(shape)}, which has another number "
                "of elements"
            )
        return operand.viewed(shape)

    def temporary(self, shape: Sequence[int], dtype: DType) -> Operand:
        """Make memory that lives from its first to its last launch."""
        operand = Operand(Buffer("arena", 0), tuple(shape), dtype)
        if operand.count >= INT_LIMIT:
            node = self._node
            reason = f"a tensor of {operand.count} elements is more than its kernels can count"
            if node is None:
                raise GraphError(f"{self.device}: {reason}")
            raise UnsupportedOpError(node.name, node.op, self.device, reason)
        return Operand(Buffer("arena", operand.size_bytes), operand.shape, dtype)

    def part(self, operand: Operand, first: int) -> Operand | None:
        """See the elements from number ``first`` on as one row, in the same memory.

        None where the device cannot give the address of that element, or there is none: then a
        kernel can be given the number.
        """
        offset_bytes = operand.offset_bytes + first * operand.dtype.item_bytes
        if not 0 <= first < operand.count or offset_bytes % self._align_bytes:
            return None
        return replace(operand, shape=(operand.count - first,), offset_bytes=offset_bytes)

    def launch(
        self,
        source: KernelSource,
        arguments: Sequence[LaunchArgument],
        global_size: Sequence[int],
        local_size: Sequence[int],
        reaches: Sequence[Reach],
    ) -> None:
        """Note a kernel to run after those noted before; sizes are work-items for each axis.

        The global size is rounded up to whole groups, so the kernel has to check its bounds.
        ``reaches`` say what it touches of each operand among the arguments, in their order, by the
        numbers that it is given. Raises GraphError where that is more than the operand has, or a
        number is more than C's int.
        """
        rounded = [
            -(-size // group) * group for size, group in zip(global_size, local_size, strict=True)
        ]
        if 0 in rounded:
            return
        launch = Launch(self._origin(), source, tuple(arguments), tuple(rounded), tuple(local_size))
        numbers = [item for item in arguments if isinstance(item, int)]
        if not all(-INT_LIMIT <= number < INT_LIMIT for number in numbers):
            raise self.contradiction(f"its kernel cannot count to {max(numbers, key=abs)}")
        if min(rounded) < 0 or max(rounded) >= INT_LIMIT:
            raise self.contradiction(f"{rounded} are no numbers of work-items")
        self._note(launch, reaches)

    def call(self, operation: LibraryOperation, arguments: Sequence[LaunchArgument]) -> None:
        """Note an operation of a library to run after what was noted before."""
        launch = Launch(self._origin(), operation, tuple(arguments), (), ())
        self._note(launch, [whole(operand) for operand in launch.operands])

    def _note(self, launch: Launch, reaches: Sequence[Reach]) -> None:
        for operand, reach in zip(launch.operands, reaches, strict=True):
            if operand.offset_bytes % self._align_bytes:
                raise GraphError(
                    f"{self._place()}an argument begins {operand.offset_bytes} bytes behind the "
                    f"start of its buffer, and the device addresses every {self._align_bytes} "
                    "bytes of one; give the kernel the number of the first element instead"
                )
            overrun = find_overrun(operand, reach)
            if overrun is not None:
                raise self.contradiction(overrun)
        self._launches.append(launch)

    def _as_it_lies(self, value: Value) -> Operand:
        if value.constant is not None and value not in self._operands:
            self._operands[value] = self._uploaded(value.constant, self.held_dtype(value))
        lies = self._strided.get(value)
        if lies is not None and value not in self._operands:
            dense = self.temporary(lies.shape, lies.operand.dtype)
            strided_copy(self, lies.operand, dense, lies.shape, lies.strides)
            self._operands[value] = dense
        if value not in self._operands:
            raise GraphError(f"value {value.name!r} is used before it is made")
        return self._operands[value]

    def _uploaded(self, array: Array, dtype: DType) -> Operand:
        buffer = self._weights.constant(array, dtype)
        self._constants[buffer] = None
        return Operand(buffer, array.shape, dtype)

    def _add_input(self, value: Value) -> Operand:
        place = self.temporary(self.shape(value), self.dtype(value))
        for item in self._joins.values():
            if self.model.graph.inputs[item.state.input] is value:
                room = self.temporary(shape_with_room(place.shape, item.state.axis), place.dtype)
                place = Operand(room.buffer, place.shape, place.dtype)
        self._operands[value] = place
        return place

    def _as_output(self, index: int, value: Value) -> Operand:
        """Return an output of the graph as the caller gets it: dense, but for states with room."""
        if any(growth.output == index for growth in self._growing):
            return self._strided[value].operand
        return self._in_own_dtype(value)

    def _in_own_dtype(self, value: Value) -> Operand:
        """Return an output of the graph in the type that the caller gets."""
        found, wanted = self.operand(value), self.dtype(value)
        return found if found.dtype is wanted else self._cast(found, wanted)

    def _cast(self, source: Operand, dtype: DType) -> Operand:
        made = self.temporary(source.shape, dtype)
        fused_launch(self, (FusedStep("Cast", ("i0",), dtype),), {"i0": source}, made)
        return made

    def _finish(self, graph: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> Plan:
        # Step 0 is the upload and the last one the download; launches stand in between.
        steps = [inputs, *(launch.operands for launch in self._launches), outputs]
        offsets, arena_bytes = place_buffers(
            ([operand.buffer for operand in step] for step in steps), self._align_bytes
        )
        return Plan(
            graph,
            tuple(self._launches),
            tuple(inputs),
            tuple(outputs),
            offsets,
            arena_bytes,
            tuple(self._constants),
            tuple(self._growing),
        )
