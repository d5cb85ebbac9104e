"""PlanBuilder: what kernels lower nodes with; it places values, emits steps and plans the memory.

Nodes are lowered in topological order. A value lies in one or more operands: the layout in which
its producer left it, and what later steps reordered it into, which is kept for the next user. A
kernel asks for the layout that its primitive wants, so a blocked layout runs on from primitive to
primitive and a reorder stands only where two disagree. Reshapes, transposes, splits and slices are
views: they define a value as another layout of the same memory.

A result may take over the memory of an operand that dies with the node (``over``); whether it may
is decided here, from the uses of all values in that memory. When all nodes are lowered, lifetimes
are known step by step, and the memory plan gives every buffer its place in the stream's arena.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ....errors import GraphError, UnsupportedOpError
from ....runtime.graph import DType, Graph, Model, Node, Value
from ....runtime.graph.sym_array import SymArray, is_symbolic
from ....runtime.lowering.growing_states import GrowingState, JoinedState, growing_states
from ....runtime.lowering.node_operands import Lowering
from ....runtime.lowering.written_states import Places, WrittenState, written_states
from ..onednn.bindings import ARG, Desc, Engine, OneDnnError, PrimitiveDesc
from ..onednn.bindings import Attributes as Attributes
from .copy_parameters import copy_parameters
from .elementwise_parameters import elementwise_axes, elementwise_parameters
from .operand_layout import Buffer, Layout, Operand
from .packed_weights import PackedWeight, WeightStore
from .plan import Description, Plan
from .rooms import growing_layout
from .step_bounds import (
    find_array_overrun,
    find_native_overrun,
    find_part_overrun,
    find_primitive_overrun,
)
from .steps import NativeStep, NumpyStep, PrimitiveStep, Step, place_steps
from .view_strides import reshaped_strides

__all__ = ["PlanBuilder"]

Array = np.ndarray[Any, Any]

_COMPUTED_TYPES = frozenset({DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16})


class PlanBuilder(Lowering):
    """Builds one plan of a specialised graph; not thread-safe.

    ``float_dtype`` is what float32 values are held in between steps: FLOAT32, or the smaller type
    of the precision hint. ``keep_nan`` asks kernels for NaN and infinities as ONNX has them, where
    oneDNN is faster without. ``name`` is what ``str`` makes the plan's id of.
    ``has_open_lengths``: the network may have plans for other lengths.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        weights: WeightStore,
        *,
        device: str = "CPU",
        thread_count: int = 1,
        float_dtype: DType = DType.FLOAT32,
        keep_nan: bool = False,
        name: object = "",
        states: Mapping[str, str] = MappingProxyType({}),
        has_open_lengths: bool = False,
    ) -> None:
        super().__init__(model, device, float_dtype)
        self._name = name
        self._growing = growing_states(model.graph, states)
        self._in_place: list[GrowingState] = []
        self._written = written_states(model.graph, states)
        self._taking_turns: list[WrittenState] = []
        self.keep_nan = keep_nan
        self.engine, self.thread_count = engine, thread_count
        self.goes_by_rows = has_open_lengths and thread_count == 1
        """True if primitives for one row are wanted, which serve others of the network's plans."""
        self.elementwise_parameters: dict[Hashable, tuple[int, ...]] = {}
        """Parameters of the groups that were lowered, which equal nodes share."""
        self.is_traced = engine.is_traced
        """True if lengths are SymInts, and the plan is a template's."""
        self.keeps_gaps = engine.is_traced
        """True if matmuls read rows with gaps, by a primitive that serves all lengths."""
        self.symbolic_constants: dict[Buffer, SymArray] = {}
        """Those that depend on lengths, by the buffer that holds them."""
        self._weights = weights
        self._steps: list[Step] = []
        self._operands: dict[Value, list[Operand]] = {}
        self._holders: dict[Buffer, set[Value]] = {}
        self._constants: dict[tuple[int, DType], Operand] = {}
        self._casts: dict[tuple[int, DType], Array] = {}
        self._keep: list[Array] = []
        self._packed: dict[PackedWeight, None] = {}
        self._uses_left: dict[Value, int] = {}
        self._outputs: dict[Value, Operand] = {}

    def build(self, lower: Callable[[Node, PlanBuilder], None]) -> Plan:
        """Lower all nodes and return the plan."""
        graph = self.model.graph
        inputs = [self._add_input(index, value) for index, value in enumerate(graph.inputs)]
        for index, value in enumerate(graph.outputs):
            self._add_output(index, value)
        self._uses_left = {value: value.is_graph_output for value in graph.outputs}
        for node in graph.nodes:
            for used in node.inputs:
                if used is not None:
                    self._uses_left[used] = len(used.uses) + used.is_graph_output
        for node in self._nodes():
            try:
                lower(node, self)
            except OneDnnError as error:
                raise UnsupportedOpError(node.name, node.op, self.device, str(error)) from error
            except GraphError as error:
                if repr(node.name) in str(error):
                    raise
                raise self.contradiction(str(error)) from error
            for used in node.inputs:
                if used is not None:
                    self._uses_left[used] -= 1
                    if not self._uses_left[used]:
                        self._drop_holder(used)
        outputs = [self._deliver(index, value) for index, value in enumerate(graph.outputs)]
        return self._finish(graph, inputs, outputs)

    def can_overwrite(self, operand: Operand) -> bool:
        """True if the memory dies with the node that is being lowered: no later step reads it.

        Nor does the node itself read several values in it, which may lie in different orders there.
        """
        if operand.buffer.kind != "arena":
            return False
        assert self._node is not None
        read_count = 0
        for value in self._holders.get(operand.buffer, ()):
            used_now = sum(1 for used in self._node.inputs if used is value)
            if self._uses_left.get(value, 0) != used_now:
                return False
            read_count += used_now > 0
        return read_count <= 1

    def operand(self, value: Value) -> Operand:
        """Return a value in the layout in which its producer left it."""
        if value.constant is not None:
            return self.constant_operand(value.constant)
        if value not in self._operands:
            raise GraphError(f"value {value.name!r} is used before it is made")
        return self._operands[value][0]

    def plain(self, value: Value, dtype: DType | None = None) -> Operand:
        """Return a value in row-major order, in its own element type unless another is given."""
        wanted = Layout.plain(self.shape(value), dtype or self.dtype(value))
        return self._in_layout(value, wanted)

    def reordered(self, value: Value, desc: Desc) -> Operand:
        """Return a value in the layout of a descriptor, whose dims may be the value's reshaped.

        Constants are packed into it, once for all plans.
        """
        shape = self.shape(value)
        self.expect_count(value, math.prod(desc.dims))
        if value.constant is not None:
            source = value.constant
            source_desc = self._constant_desc(source, desc)
            return self.packed(source, source_desc, desc)
        if desc.dims != shape and not (shape == () and desc.dims == (1,)):
            wanted = Layout.plain(desc.dims, desc.dtype)
            strides = None
            if desc.strides is not None and desc.strides != wanted.strides:
                strides = reshaped_strides(desc.dims, desc.strides, shape)
            if strides is not None:
                own = self.engine.desc(shape, desc.dtype, strides)
                return self.reordered(value, own).viewed(Layout.of(desc))
            flat = self.plain(value, desc.dtype).viewed(wanted)
            return flat if flat.layout.desc(self.engine) == desc else self._reorder(flat, desc)
        for operand in self._operands.get(value, ()):
            if operand.layout.has_desc and operand.layout.desc(self.engine) == desc:
                return operand
        made = self._reorder(self.operand(value), desc)
        self._remember(value, made)
        return made

    def packed(self, source: Array, source_desc: Desc, desc: Desc) -> Operand:
        """Return a constant in a layout; ``source_desc`` says how its memory is to be seen.

        Where both agree the constant's own memory is used. Plans share what was packed.
        """
        if is_symbolic(source):
            source = np.asarray(source)
        source_desc, desc = source_desc.fixed(), desc.fixed()  # plans of a template share it
        if source_desc.size_bytes != source.nbytes:
            raise self.contradiction(f"{source_desc} is read from {source.nbytes} bytes")
        if source_desc == desc:
            return Operand(self._constant(source).buffer, Layout.of(desc))
        weight = self._weights.packed(source, source_desc, desc)
        self._packed[weight] = None
        return Operand(weight.buffer, Layout.of(desc))

    def derived(
        self, operation: str, sources: Sequence[Array], compute: Callable[[], Array]
    ) -> Array:
        """Compute a constant from constants of the model, once for all plans of the network."""
        return self._weights.derived.get(operation, sources, compute)

    def constant_operand(self, array: Array) -> Operand:
        """Return a constant in its own row-major memory; arrays made here are kept by the plan."""
        return self._constant(array if is_symbolic(array) else np.asarray(array))

    def result(self, value: Value, layout: Layout, over: Operand | None = None) -> Operand:
        """Make the place of a result: the run's own output, ``over``'s memory, or new memory."""
        output = self._outputs.get(value)
        if output is not None and output.layout == layout:
            made = output
        elif output is not None and self._is_same(output.layout, layout):
            made = Operand(output.buffer, layout)
        elif over is not None and self._can_reuse(over, layout):
            made = Operand(over.buffer, layout, over.offset_bytes)
        else:
            made = self.temporary(layout)
        self._remember(value, made)
        return made

    def growing(self, value: Value) -> Operand | None:
        """Return the place of a join that begins with an input, both in memory of the run.

        For the lowering of that join, which fills it part by part, that of the input first. None
        for any other.
        """
        for item in self._growing:
            if item.joined is value and self.held_dtype(value) is self.dtype(value):
                target = self._outputs[self.model.graph.outputs[item.state.output]]
                layout = Layout.plain(self.shape(value), target.dtype, target.layout.strides)
                place = self._rows_bytes(item, target.layout, item.lead)
                self._in_place.append(item.state)
                return self.define(value, Operand(target.buffer, layout, place))
        return None

    def written(self, value: Value) -> tuple[Operand, Places] | None:
        """Return the place of an output that holds its state's input already, to write the rest.

        For the lowering of the node that makes it, which notes where it writes. None for any other.
        """
        output = self._outputs.get(value)
        for state in self._written:
            if output is not None and output.buffer.index == state.output:
                if self.held_dtype(value) is not self.dtype(value):
                    return None
                made = self.result(value, output.layout)
                assert made.buffer is output.buffer
                self._taking_turns.append(state)
                return made, state.places
        return None

    def define_constant(self, value: Value, array: Array) -> None:
        self.define(value, self.constant_operand(array))

    def define(self, value: Value, operand: Operand) -> Operand:
        """Define a value as another view of an operand's memory."""
        self._remember(value, operand)
        return operand

    def temporary(self, layout: Layout) -> Operand:
        """Make memory that lives from its first to its last step."""
        return Operand(Buffer("arena", layout.size_bytes), layout)

    def primitive(
        self,
        desc: PrimitiveDesc,
        reads: Mapping[int, Operand],
        writes: Mapping[int, Operand],
        part_count: int = 1,
        moves: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Emit a primitive; memory for its scratchpad is added.

        ``moves`` has it executed for ``part_count`` parts: by role, the bytes to the next one.
        """
        arguments = [*reads.items(), *writes.items()]
        scratch = desc.desc("scratchpad")
        if not scratch.is_absent and scratch.size_bytes:
            arguments.append((ARG.SCRATCHPAD, self.temporary(Layout.of(scratch))))
        self._refuse(find_primitive_overrun(desc, arguments))
        steps = tuple([moves.get(role, 0) for role, _ in arguments]) if moves else ()
        self._refuse(find_part_overrun(desc, arguments, part_count, steps))
        if desc.is_open:
            engine = self.engine
            given = [(role, operand.layout.desc(engine)) for role, operand in arguments]
            self._refuse(desc.find_misfit(given))
        self._steps.append(
            PrimitiveStep(
                self._origin(),
                desc,
                desc.create(),
                tuple(arguments),
                tuple(writes.values()),
                part_count,
                steps,
            )
        )

    def native(self, kernel: str, operands: Sequence[Operand], parameters: Sequence[int]) -> None:
        """Emit a native kernel (native_*.c) on operands in the order that it documents."""
        words = tuple([word if isinstance(word, int) else int(word) for word in parameters])
        self._refuse(find_native_overrun(kernel, operands, words))
        self._steps.append(NativeStep(self._origin(), kernel, tuple(operands), words))

    def numpy(
        self,
        function: Callable[..., None],
        operands: Sequence[Operand],
        *,
        knows_lengths: bool = True,
        node: Node | None = None,
        places: Places | None = None,
    ) -> None:
        """Emit a call with an array over each operand; it fills the last ones.

        ``knows_lengths`` is False for a function that goes by nothing but these arrays. ``node`` is
        what it computes, and ``places`` are those of a state that it writes into.
        It interrupts the native call, and needs the GIL: only for what is rare.
        """
        self._refuse(find_array_overrun(operands))
        self._steps.append(
            NumpyStep(self._origin(), function, tuple(operands), knows_lengths, node, places)
        )

    def move(self, source: Operand, target: Operand) -> None:
        """Emit what fills the target from a source of the same shape, whatever their layouts."""
        self._convert(source, target)

    def copy(self, source: Operand, target: Operand) -> None:
        """Emit a copy between two strided layouts of one shape and element type."""
        if source.layout.count:
            self.native("copy", (source, target), copy_parameters(source.layout, target.layout))

    def _in_layout(self, value: Value, wanted: Layout) -> Operand:
        if value.constant is not None and wanted.dtype is DType.of(value.constant.dtype):
            return self.constant_operand(value.constant)
        for operand in self._operands.get(value, ()):
            if self._is_same(operand.layout, wanted):
                return operand
        if value.constant is not None:
            return self.constant_operand(self._cast(value.constant, wanted.dtype))
        made = self._converted(self.operand(value), wanted)
        self._remember(value, made)
        return made

    def _converted(self, source: Operand, wanted: Layout) -> Operand:
        made = self.temporary(wanted)
        self._convert(source, made)
        return made

    def _convert(self, source: Operand, target: Operand) -> None:
        """Fill the target from a source of the same shape, in whatever layout and element type."""
        if not target.layout.count:
            return
        is_strided = source.layout.strides is not None and target.layout.strides is not None
        if is_strided and source.dtype is target.dtype:
            self.copy(source, target)
        elif is_strided and not (source.layout.has_desc and target.layout.has_desc):
            self._convert_by_elementwise(source, target)
        else:
            self._reorder(source, target.layout.desc(self.engine), target)

    def _convert_by_elementwise(self, source: Operand, target: Operand) -> None:
        """Convert between floating types where oneDNN cannot describe the layouts."""
        for operand in (source, target):
            if operand.dtype not in _COMPUTED_TYPES:
                raise OneDnnError(f"descriptor of {operand.layout}", 3)
        layouts = [source.layout, target.layout]
        axes = elementwise_axes(layouts)
        assert axes is not None
        parameters = elementwise_parameters("float_elementwise", layouts, axes, ())
        self.native("float_elementwise", (source, target), parameters)

    def _reorder(self, source: Operand, desc: Desc, target: Operand | None = None) -> Operand:
        engine = self.engine
        if not source.layout.has_desc:
            source = self._converted(source, Layout.plain(source.shape, source.dtype))
        reorder = engine.primitive_desc(
            "reorder",
            source.layout.desc(engine),
            engine,
            desc,
            engine,
            Attributes(engine),
        )
        made = target or self.temporary(Layout.of(desc))
        self.primitive(reorder, {ARG.SRC: source}, {ARG.DST: made})
        return made

    def _cast(self, array: Array, dtype: DType) -> Array:
        key = (id(array), dtype)
        if key not in self._casts:
            self._keep.append(array)
            self._casts[key] = array.astype(dtype.numpy)
        return self._casts[key]

    def _constant_desc(self, source: Array, desc: Desc) -> Desc:
        dims = desc.dims
        return self.engine.desc(dims, DType.of(source.dtype))

    def _constant(self, array: Array) -> Operand:
        dtype = DType.of(array.dtype)
        if dtype is DType.STRING:
            raise self.contradiction("a constant holds texts, which are references and no bytes")
        key = (id(array), dtype)
        if key in self._constants:
            return self._constants[key]
        if isinstance(array, np.ndarray) and is_symbolic(array):
            symbolic: Any = array
            buffer = Buffer("constant", array.nbytes, array=symbolic.hint)
            self.symbolic_constants[buffer] = symbolic
        else:
            buffer = self._weights.plain(array)
        self._keep.append(array)
        operand = Operand(buffer, Layout.plain(array.shape, dtype))
        return self._constants.setdefault(key, operand)

    def _refuse(self, reason: str | None) -> None:
        if reason is not None:
            raise self.contradiction(reason)

    def _remember(self, value: Value, operand: Operand) -> None:
        if operand.shape != self.shape(value):
            raise self.contradiction(
                f"{value.name!r} is {list(operand.shape)} and not {list(self.shape(value))}"
            )
        known = self._operands.setdefault(value, [])
        known.append(operand)
        self._holders.setdefault(operand.buffer, set()).add(value)

    def _drop_holder(self, value: Value) -> None:
        """Forget where a value without further uses lies; a buffer may hold many in turn."""
        for operand in self._operands.get(value, ()):
            self._holders[operand.buffer].discard(value)

    def _is_same(self, left: Layout, right: Layout) -> bool:
        if left.shape != right.shape or left.dtype is not right.dtype:
            return False
        return (left.is_row_major and right.is_row_major) or left == right

    def _can_reuse(self, over: Operand, layout: Layout) -> bool:
        fits = layout.size_bytes <= over.buffer.size_bytes - over.offset_bytes
        return fits and self.can_overwrite(over)

    def _add_input(self, index: int, value: Value) -> Operand:
        layout = Layout.plain(self.shape(value), self.dtype(value))
        for item in self._growing:
            if item.state.input == index:
                layout = growing_layout(layout, item.state.axis, is_window=item.state.is_window)
        operand = Operand(Buffer("input", layout.size_bytes, index=index), layout)
        self._remember(value, operand)
        return operand

    def _add_output(self, index: int, value: Value) -> None:
        if value in self._outputs:
            return
        layout = Layout.plain(self.shape(value), self.dtype(value))
        offset_bytes = 0
        for item in self._growing:
            if item.state.output == index:
                layout = growing_layout(layout, item.state.axis, is_window=item.state.is_window)
                offset_bytes = self._rows_bytes(item, layout, item.shift)
        buffer = Buffer("output", offset_bytes + layout.size_bytes, index=index)
        self._outputs[value] = Operand(buffer, layout, offset_bytes)

    def _rows_bytes(self, item: JoinedState, layout: Layout, rows: int) -> int:
        """Return how many bytes from one row of a state to that ``rows`` further on."""
        assert layout.strides is not None
        return rows * layout.strides[item.state.axis] * layout.dtype.item_bytes

    def _deliver(self, index: int, value: Value) -> Operand:
        """Make sure that an output's own memory is written, and return it."""
        own = self._outputs[value]
        if own.buffer.index != index:  # the same value is returned twice
            twin = Operand(Buffer("output", own.layout.size_bytes, index=index), own.layout)
            self._convert(self.operand(value), twin)
            return twin
        if any(known.buffer is own.buffer for known in self._operands.get(value, ())):
            return own
        self._convert(self.operand(value), own)
        return own

    def _finish(self, graph: Graph, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> Plan:
        self._expect_written(graph, outputs)
        offsets, arena_bytes = ({}, 0) if self.is_traced else place_steps(self._steps)
        layouts = {value.name: operands[0].layout for value, operands in self._operands.items()}
        return Plan(
            engine=self.engine,
            description=Description.of(graph, layouts, self.float_dtype, self._name),
            steps=tuple(self._steps),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            output_names=tuple(value.name for value in graph.outputs),
            offsets=offsets,
            arena_bytes=arena_bytes,
            thread_count=self.thread_count,
            weights=tuple(self._packed),
            growing=tuple(item.state for item in self._growing),
            in_place=frozenset(self._in_place),
            written=tuple(self._taking_turns),
        )

    def _expect_written(self, graph: Graph, outputs: Sequence[Operand]) -> None:
        """Raise for an output that no step fills: its memory would go to the caller as it is."""
        touched = {operand.buffer for step in self._steps for operand in step.operands}
        for value, output in zip(graph.outputs, outputs, strict=True):
            if output.buffer not in touched and output.layout.count:
                raise GraphError(f"no step of the plan writes the output {value.name!r}")
