"""A plan for other lengths: its steps again, with the numbers that they come to.

A template is a plan that was built with SymInts (see runtime/graph/sym_int.py) and the trace of how
it was built. For other lengths the trace is computed again: all numbers, the descriptors and
primitives that depend on them, and the guards, which say whether the same steps are right. Memory
is then planned for the new sizes. Nothing else of building a plan depends on lengths.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....errors import AioInferError
from ....executors import allowed_cpus
from ....runtime.graph import Graph, TensorType, Value, copy_graph
from ....runtime.graph.sym_array import SymArray
from ....runtime.graph.sym_int import SymInt, Trace, has_sym_ints, identity_of, is_sym_int
from ....runtime.lowering.node_operands import spans_of
from ....runtime.passes.input_binding import symbol_bindings
from ....runtime.plans.memory_plan import Spans
from ..native.step_runner import step_runner
from ..onednn.bindings import Engine
from ..onednn.traced import OneDnnReplay, TracedDesc, TracedPrimitiveDesc
from .operand_layout import Buffer, Layout, Operand
from .plan import Description, Plan
from .step_table import ReplayedSteps, StepTable
from .steps import NativeStep, NumpyStep, PrimitiveStep, Step, step_buffers

__all__ = ["FreeLengths", "PlanTemplate"]

Array = np.ndarray[Any, Any]


class FreeLengths:
    """Which lengths of a model's inputs are free: one of each symbol, and each open one.

    None are where an input may have any number of axes.
    """

    def __init__(self, inputs: Sequence[Value]) -> None:
        self._places: dict[str, list[int | None]] = {}
        """Of each input: which free length an axis has, None for one of the model's own."""
        self._inputs = tuple(inputs)
        known: dict[str, int] = {}
        self.count = 0
        for value in inputs:
            if not isinstance(value.type, TensorType):
                continue
            if value.type.shape is None:
                return
            places = self._places[value.name] = []
            for axis, dim in enumerate(value.type.shape):
                symbol = dim if isinstance(dim, str) else f"{value.name} {axis}"
                is_free = not isinstance(dim, int)
                places.append(known.setdefault(symbol, len(known)) if is_free else None)
        self.count = len(known)

    def lengths(self, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
        """Read the free lengths from the shapes of all inputs, by name.

        Raises TensorError for shapes that contradict the model or each other.
        """
        symbol_bindings(self._inputs, shapes)
        found = [0] * self.count
        for name, shape in shapes.items():
            for place, length in zip(self._places[name], shape, strict=True):
                if place is not None:
                    found[place] = length
        return tuple(found)

    def with_lengths(
        self, shapes: Mapping[str, Sequence[int]], free: Sequence[SymInt]
    ) -> dict[str, tuple[int, ...]]:
        """Put SymInts for the free lengths into the shapes of inputs."""
        made: dict[str, Any] = {}
        for name, shape in shapes.items():
            pairs = zip(self._places[name], shape, strict=True)
            made[name] = tuple([dim if place is None else free[place] for place, dim in pairs])
        return made


class PlanTemplate:
    """Makes plans for lengths that lead to the same steps. Thread-safe.

    ``plan`` was built with the SymInts of ``trace``, which is closed here; ``constants`` are what
    stands behind those of its buffers that depend on lengths.
    """

    def __init__(
        self, trace: Trace, plan: Plan, engine: Engine, constants: dict[Buffer, SymArray]
    ) -> None:
        shared = _Sharing()
        steps = tuple(map(shared.step, plan.steps))
        self._table = _OpenTable(
            StepTable.of(steps, plan.inputs, plan.outputs, plan.engine), constants
        )
        spans = spans_of(step_buffers(steps))
        self._temporaries, self._spans = tuple(spans), Spans(spans.values())
        self._trace, self._plan, self._engine = trace.close(), replace(plan, steps=steps), engine
        self._constants = constants

    @property
    def thread_count(self) -> int:
        """How many threads its plans are for."""
        return self._plan.thread_count

    def release_graph(self) -> None:
        """Free the large constants of the graph that plans are described by."""
        self._plan.release_graph()

    @property
    def is_reusable(self) -> bool:
        """True if the steps do nothing that a replay cannot know."""
        steps = self._plan.steps
        return not any(isinstance(step, NumpyStep) and step.knows_lengths for step in steps)

    def plan_for(self, free: Sequence[int], name: object = "") -> Plan | None:
        """Make the plan for these free lengths; None where it would have other steps.

        The caller's thread has a team as large as the plan's. Blocks for some milliseconds.
        """
        plan = self._plan
        try:
            replay = self._trace.values_for(
                free, lambda values: _PlanReplay(self._engine, values, self._constants)
            )
            if replay is None:
                return None
            table = self._table.replayed(replay)
        except (AioInferError, ArithmeticError, ValueError, IndexError):
            return None
        temporaries = [replay.buffer(buffer) for buffer in self._temporaries]
        arena = self._spans.place([buffer.size_bytes for buffer in temporaries])
        return replace(
            plan,
            engine=self._engine,
            steps=ReplayedSteps(table, plan.steps, replay.step),
            inputs=tuple(map(replay.operand, plan.inputs)),
            outputs=tuple(map(replay.operand, plan.outputs)),
            offsets=dict(zip(temporaries, arena.offsets, strict=True)),
            arena_bytes=arena.size_bytes,
            description=Description(
                partial(_graph_for, replay, plan), plan.description.float_dtype, name
            ),
            resized={},
        )


class _Sharing:
    """Makes equal layouts and operands one object, so that a replay makes each of them once."""

    def __init__(self) -> None:
        self._layouts: dict[Hashable, Layout] = {}
        self._operands: dict[Hashable, Operand] = {}

    def step(self, step: Step) -> Step:
        if isinstance(step, PrimitiveStep):
            arguments = tuple([(role, self._operand(item)) for role, item in step.arguments])
            return step._replace(arguments=arguments, writes=tuple(map(self._operand, step.writes)))
        return step._replace(operands=tuple(map(self._operand, step.operands)))

    def _operand(self, operand: Operand) -> Operand:
        layout = operand.layout
        key = (
            tuple(map(identity_of, layout.shape)),
            layout.dtype,
            None if layout.strides is None else tuple(map(identity_of, layout.strides)),
            id(layout.own_desc),
        )
        shared = self._layouts.setdefault(key, layout)
        place = id(operand.buffer), id(shared), identity_of(operand.offset_bytes)
        known = self._operands.get(place)
        if known is None:
            made = Operand(operand.buffer, shared, operand.offset_bytes)
            known = self._operands[place] = made
        return known


class _OpenTable:
    """A template's table, and which of its parts are others for other lengths."""

    def __init__(self, table: StepTable, constants: dict[Buffer, SymArray]) -> None:
        self._table = table
        self._buffers = [
            place
            for place, buffer in enumerate(table.buffers)
            if buffer in constants or is_sym_int(buffer.size_bytes)
        ]
        self._descs = [
            place for place, desc in enumerate(table.descs) if isinstance(desc, TracedDesc)
        ]
        traced = [desc for desc in table.primitive_descs if type(desc) is TracedPrimitiveDesc]
        self._compiled = list({id(desc): desc for desc in traced}.values())
        self._thread_count = allowed_cpus().whole_count

    def replayed(self, replay: _PlanReplay) -> StepTable:
        """Make the parts again."""
        table = self._table
        buffers, descs = list(table.buffers), list(table.descs)
        for place in self._buffers:
            buffers[place] = replay.buffer(buffers[place])
        for place in self._descs:
            descs[place] = replay.desc(descs[place])
        replay.compile(self._compiled, self._thread_count)
        pairs = zip(table.primitive_descs, table.primitives, strict=True)
        return StepTable(
            table.form,
            replay.numbers(table.numbers),
            tuple(buffers),
            tuple(descs),
            table.primitive_descs,
            tuple([replay.primitive(desc, made) for desc, made in pairs]),
        )


class _PlanReplay(OneDnnReplay):
    """Makes steps again. Objects of the template that depend on no length are shared."""

    def __init__(
        self, engine: Engine, values: list[Any], constants: dict[Buffer, SymArray]
    ) -> None:
        super().__init__(engine, values)
        self._constants = constants
        self._parts: dict[int, Any] = {}
        self._arrays: dict[int, Array] = {}

    def compile(self, descs: Sequence[TracedPrimitiveDesc], thread_count: int) -> None:
        """Compile what stands for these primitives here, by up to that many threads."""
        if not descs:
            return
        wanted = [self.primitive_desc(desc) for desc in descs]
        made = step_runner(self.engine).primitives(self.engine, wanted, thread_count)
        self.keep_primitives(descs, made)

    def array(self, array: Any) -> Array:
        """Return what stands for a constant here."""
        if type(array) is not SymArray:
            plain: Array = array
            return plain
        made = self._arrays.get(id(array))
        if made is None:
            made = self._arrays[id(array)] = array.recipe(self)
        return made

    def step(self, step: Step) -> Step:
        if isinstance(step, PrimitiveStep):
            return PrimitiveStep(
                step.origin,
                self.primitive_desc(step.desc),
                self.primitive(step.desc, step.primitive),
                tuple([(role, self.operand(operand)) for role, operand in step.arguments]),
                tuple(map(self.operand, step.writes)),
                self.number(step.part_count),
                self.numbers(step.moves),
            )
        operands = tuple(map(self.operand, step.operands))
        if isinstance(step, NativeStep):
            return NativeStep(step.origin, step.kernel, operands, self.numbers(step.parameters))
        return step._replace(operands=operands)

    def operand(self, operand: Operand) -> Operand:
        made = self._parts.get(id(operand))
        if made is None:
            made = Operand(
                self.buffer(operand.buffer),
                self.layout(operand.layout),
                self.number(operand.offset_bytes),
            )
            self._parts[id(operand)] = made
        found: Operand = made
        return found

    def layout(self, layout: Layout) -> Layout:
        made = self._parts.get(id(layout))
        if made is None:
            desc, strides = layout.own_desc, layout.strides
            made = self._parts[id(layout)] = Layout(
                self.numbers(layout.shape),
                layout.dtype,
                None if strides is None else self.numbers(strides),
                None if desc is None else self.desc(desc),
            )
        found: Layout = made
        return found

    def buffer(self, buffer: Buffer) -> Buffer:
        made = self._parts.get(id(buffer))
        if made is None:
            made = buffer
            constant = self._constants.get(buffer)
            if constant is not None:
                array = np.require(self.array(constant), requirements=["C", "A"])
                made = Buffer("constant", array.nbytes, array=array, is_of_plan=True)
            elif is_sym_int(buffer.size_bytes):
                made = Buffer(buffer.kind, self.number(buffer.size_bytes), index=buffer.index)
            self._parts[id(buffer)] = made
        found: Buffer = made
        return found


def _graph_for(replay: _PlanReplay, plan: Plan) -> tuple[Graph, dict[str, Layout]]:
    graph = copy_graph(plan.graph)
    values = [*graph.inputs, *graph.initializers.values()]
    for node in graph.nodes:
        values += node.outputs
        for name, attribute in node.attributes.items():
            if isinstance(attribute, list) and has_sym_ints(attribute):
                node.attributes[name] = list(replay.numbers(attribute))
            elif is_sym_int(attribute):
                node.attributes[name] = replay.number(attribute)
    for value in values:
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            shape = tuple([replay.number(dim) for dim in value.type.shape])  # type: ignore[arg-type]
            value.type = TensorType(value.type.dtype, shape)
        if value.constant is not None:
            value.constant = replay.array(value.constant)
    layouts = {name: replay.layout(layout) for name, layout in plan.layouts.items()}
    return graph, layouts
