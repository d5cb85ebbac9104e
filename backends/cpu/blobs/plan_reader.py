"""Plans from the rows of a blob, held to what plans that are built are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....executors import allowed_cpus
from ....runtime.blobs.tensors_record import (
    TensorReader,
    as_list,
    damaged,
    dtype_of,
    lengths_of,
)
from ....runtime.graph import DType
from ....runtime.lowering.growing_states import GrowingState
from ....runtime.lowering.node_operands import NodeOrigin
from ....runtime.lowering.written_states import Places, WrittenState
from ....runtime.plans.capacity import memory_bytes
from ....runtime.plans.memory_plan import ALIGN_BYTES
from ..native.step_runner import step_runner
from ..onednn.bindings import ARG, Desc, Engine, Primitive
from ..plans.operand_layout import Buffer, Layout, Operand
from ..plans.packed_weights import PackedWeight, WeightStore
from ..plans.plan import Description, Plan
from ..plans.step_bounds import (
    find_array_overrun,
    find_missing_argument,
    find_native_overrun,
    find_part_overrun,
    find_primitive_overrun,
    find_shared_memory,
    find_write_to_constant,
    find_wrong_places,
    native_places,
    native_writes,
    primitive_writes,
)
from ..plans.steps import NativeStep, NumpyStep, PrimitiveStep, Step
from .node_record import NodesReader, find_other_shape
from .onednn_record import MOST_THREADS, OneDnnReader

__all__ = ["Describe", "PlanReader", "count_of"]

Describe = Callable[[Mapping[str, Layout], DType, str], Description]
"""Makes what a plan is described by: of layouts by name, the type of floats, and its id."""


class PlanReader:
    """Reads one plan. Its primitives are compiled side by side, for as many threads as it has."""

    def __init__(
        self,
        engine: Engine,
        weights: WeightStore,
        tensors: TensorReader,
        nodes: NodesReader,
        content: Mapping[str, Any],
    ) -> None:
        self._engine, self._content = engine, content
        self._weights, self._tensors, self._nodes = weights, tensors, nodes
        self._written: list[WrittenState] = []
        self.packed: list[PackedWeight] = []
        self._onednn = OneDnnReader(engine, content["onednn"])
        self._primitives = self._compile(content["steps"])
        self._layouts = [self._make_layout(row) for row in content["layouts"]]
        self._buffers = [self._make_buffer(row) for row in as_list(content["buffers"])]
        self._operands = [self._make_operand(row) for row in content["operands"]]

    def plan(self, inputs: Sequence[Any], outputs: Sequence[Any], describe: Describe) -> Plan:
        """Read the plan, whose ports have these types, and which ``describe`` tells the graph of.

        Raises BlobError, or what a record raises that is none.
        """
        content = self._content
        reads = [self.operand(number) for number in content["inputs"]]
        writes = [self.operand(number) for number in content["outputs"]]
        _check_ports(reads, inputs, "input")
        _check_ports(writes, outputs, "output")
        arena_bytes = count_of(content["arena_bytes"], 0, most_bytes())
        names = [str(name) for name in content["output_names"]]
        if len(names) != len(writes):
            raise damaged("its plan has outputs without names")
        growing = [self._growing(row, reads, writes) for row in content["growing"]]
        self._written = [
            WrittenState(
                count_of(row[0], 0, len(reads) - 1),
                count_of(row[1], 0, len(writes) - 1),
                Places(),
            )
            for row in content["written"]
        ]
        steps = tuple([self._step(row) for row in content["steps"]])
        offsets = self._offsets(content["offsets"], arena_bytes)
        for step in steps:
            _refuse(step.origin, _find_shared_memory(step, offsets))
        layouts = {
            str(name): self.layout(number) for name, number in content["layouts_by_name"].items()
        }
        return Plan(
            engine=self._engine,
            description=describe(layouts, dtype_of(content["float_dtype"]), str(content["id"])),
            steps=steps,
            inputs=reads,
            outputs=writes,
            output_names=names,
            offsets=offsets,
            arena_bytes=arena_bytes,
            thread_count=count_of(content["thread_count"], 1, MOST_THREADS),
            weights=tuple(self.packed),
            growing=growing,
            in_place=[growing[number] for number in content["in_place"]],
            written=tuple(self._written),
        )

    def _compile(self, steps: Any) -> dict[int, Primitive]:
        """Compile the primitives of the steps, each once, by the number of its descriptor."""
        numbers = list(dict.fromkeys(row[2] for row in steps if row[0] == "primitive"))
        descs = [self._onednn.primitive_desc(number) for number in numbers]
        team = self._content["thread_count"]
        if any(desc.thread_count != team for desc in descs):
            raise damaged(f"a step of its plan is not for {team!r:.20} threads")
        thread_count = allowed_cpus().whole_count
        made = step_runner(self._engine).primitives(self._engine, descs, thread_count)
        return dict(zip(numbers, made, strict=True))

    @staticmethod
    def _growing(
        row: Sequence[Any], inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> GrowingState:
        source, target, axis, is_window = row
        state = GrowingState(
            count_of(source, 0, len(inputs) - 1),
            count_of(target, 0, len(outputs) - 1),
            count_of(axis, 0, len(inputs[source].shape) - 1),
            is_window=bool(count_of(is_window, 0, 1)),
        )
        if len(inputs[state.input].shape) != len(outputs[state.output].shape):
            raise damaged("a state of its plan has other axes than what feeds it")
        return state

    def layout(self, number: Any) -> Layout:
        return self._layouts[count_of(number, 0, len(self._layouts) - 1)]

    def operand(self, number: Any) -> Operand:
        return self._operands[count_of(number, 0, len(self._operands) - 1)]

    def _offsets(self, rows: Any, arena_bytes: int) -> dict[Buffer, int]:
        found = {self._buffer(number): count_of(offset, 0, arena_bytes) for number, offset in rows}
        end = 0
        for buffer in self._buffers:
            if buffer.kind == "arena":
                if buffer not in found:
                    raise damaged("a buffer of its plan has no place in the arena")
                if found[buffer] % ALIGN_BYTES:
                    raise damaged(f"byte {found[buffer]} of the arena is no place for a buffer")
                end = max(end, found[buffer] + buffer.size_bytes)
        if not end <= arena_bytes < end + ALIGN_BYTES:
            raise damaged(f"its plan takes {end} bytes of an arena of {arena_bytes}")
        return found

    def _step(self, row: Sequence[Any]) -> Step:
        kind, (name, op, originals, is_delivery), *rest = row
        origin = NodeOrigin(str(name), str(op), tuple(map(str, originals)), bool(is_delivery))
        if kind == "primitive":
            number, pairs, written, parts = rest
            desc = self._onednn.primitive_desc(number)
            arguments = tuple(
                [(count_of(role, 0, 1 << 20), self.operand(place)) for role, place in pairs]
            )
            _refuse(origin, find_primitive_overrun(desc, arguments))
            count, *moves = [count_of(item, 0, most_bytes()) for item in parts]
            _refuse(origin, find_part_overrun(desc, arguments, count, moves))
            _refuse(origin, find_missing_argument(desc, dict(arguments)))
            scratchpad = dict(arguments).get(ARG.SCRATCHPAD)
            if scratchpad is not None and scratchpad.offset_bytes:
                raise damaged(f"{origin.op} (node {origin.name!r}) has a scratchpad in the midst")
            writes = tuple([self.operand(place) for place in written])
            _refuse(origin, find_write_to_constant(primitive_writes(desc, dict(arguments))))
            primitive = self._primitives[number]
            return PrimitiveStep(origin, desc, primitive, arguments, writes, count, tuple(moves))
        if kind == "python":
            return self._numpy_step(origin, *rest)
        if kind != "native":
            raise damaged(f"there is no step of kind {kind!r:.20}")
        kernel, places, parameters = rest
        operands = tuple([self.operand(place) for place in places])
        words = tuple([count_of(word, -(1 << 63), (1 << 63) - 1) for word in parameters])
        _refuse(origin, find_native_overrun(kernel, operands, words))
        _refuse(origin, find_write_to_constant(native_writes(kernel, operands, words)))
        for place in native_places(kernel, operands):  # a file's own may change after the look
            place.buffer.array = None if place.buffer.array is None else place.buffer.array.copy()
        _refuse(origin, find_wrong_places(kernel, operands, words))
        return NativeStep(origin, kernel, operands, words)

    def _numpy_step(
        self, origin: NodeOrigin, number: Any, operand_numbers: Any, state: Any, knows_lengths: Any
    ) -> NumpyStep:
        places = None
        if state is not None:
            places = self._written[count_of(state, 0, len(self._written) - 1)].places
        node, function = self._nodes.function(number, places)
        operands = tuple([self.operand(place) for place in operand_numbers])
        read_count, write_count = self._nodes.operand_counts(node, places)
        if len(operands) != read_count + write_count:
            raise damaged(f"{origin.op} (node {origin.name!r}) has {len(operands)} operands")
        reads, writes = operands[:read_count], operands[read_count:]
        _refuse(origin, find_array_overrun(operands))
        _refuse(origin, find_write_to_constant(writes))
        if places is None and node.user_kernel is None:
            _refuse(origin, find_other_shape(node, reads, writes))
        return NumpyStep(origin, function, operands, bool(knows_lengths), node, places)

    def _make_layout(self, row: Sequence[Any]) -> Layout:
        shape, label, strides, desc = row
        dtype, lengths = dtype_of(label), tuple(lengths_of(shape, "a layout"))
        own = None if desc is None else self._onednn.desc(desc)
        if strides is None:
            if own is None or own.dims != lengths or own.dtype is not dtype:
                raise damaged(f"a layout of {list(lengths)} has no order in memory")
            return Layout.of(own)
        steps = tuple([count_of(step, -(1 << 62), 1 << 62) for step in strides])
        if len(steps) != len(lengths):
            raise damaged(f"a layout of {len(lengths)} axes has {len(steps)} strides")
        if own is not None and (own.dims != lengths or own.strides != steps):
            raise damaged(f"a layout of {list(lengths)} is not that of its descriptor")
        return Layout(lengths, dtype, steps, own)

    def _make_buffer(self, row: Sequence[Any]) -> Buffer:
        kind, size_bytes, index, is_of_plan, tensor, packed = row
        if kind not in ("arena", "constant", "input", "output"):
            raise damaged(f"there is no buffer of kind {kind!r:.20}")
        size = count_of(size_bytes, 0, most_bytes())
        if kind != "constant":
            return Buffer(kind, size, index=count_of(index, 0, 1 << 20))
        array = self._tensors.get(tensor)
        if array.nbytes < size or not array.flags.c_contiguous or array.dtype == object:
            raise damaged(f"a constant of its plan has {array.nbytes} of {size} bytes")
        if packed is not None:
            desc: Desc = self._onednn.desc(packed)
            if desc.size_bytes != size:
                raise damaged(f"a packed weight has {size} of {desc.size_bytes} bytes")
            weight = self._weights.take(desc, array)
            self.packed.append(weight)
            return weight.buffer
        made = Buffer("constant", size, array=array, is_of_plan=bool(is_of_plan))
        return self._weights.keep(made)

    def _make_operand(self, row: Sequence[Any]) -> Operand:
        buffer, number, offset = row
        layout = self.layout(number)
        if count_of(offset, 0, 1 << 48) % layout.dtype.item_bytes:
            raise damaged(f"{layout} begins at byte {offset}")
        return Operand(self._buffer(buffer), layout, offset)

    def _buffer(self, number: Any) -> Buffer:
        return self._buffers[count_of(number, 0, len(self._buffers) - 1)]


def _check_ports(operands: Sequence[Operand], types: Sequence[Any], kind: str) -> None:
    """Raise BlobError unless the plan reads arrays of the types that the network checks.

    Of a type without a shape it is the element type.
    """
    if len(operands) != len(types):
        raise damaged(f"its plan has {len(operands)} {kind}s, and its graph {len(types)}")
    for index, (operand, wanted) in enumerate(zip(operands, types, strict=True)):
        if operand.buffer.kind != kind or operand.buffer.index != index:
            raise damaged(f"the {kind} {index} of its plan is {operand.buffer}")
        fits = wanted.shape is None or (
            len(wanted.shape) == len(operand.shape)
            and all(
                not isinstance(dim, int) or dim == length
                for dim, length in zip(wanted.shape, operand.shape, strict=True)
            )
        )
        if operand.dtype is not wanted.dtype or not fits:
            raise damaged(f"an {kind} of its plan is {operand.layout}, and {wanted} in its graph")


def _find_shared_memory(step: Step, offsets: Mapping[Buffer, int]) -> str | None:
    """Look at what has to have memory of its own: scratchpads, and results made by indices."""
    if isinstance(step, PrimitiveStep):
        for own, operand in step.arguments:
            if own in (ARG.SCRATCHPAD, ARG.WORKSPACE):
                others = [other for role, other in step.arguments if role != own]
                found = find_shared_memory(operand, others, offsets)
                if found is not None:
                    return found
    elif isinstance(step, NativeStep) and step.kernel in ("resample", "sample_grid"):
        return find_shared_memory(step.operands[-1], step.operands[:-1], offsets)
    elif isinstance(step, NativeStep) and step.kernel == "tree_ensemble":
        for written in native_writes(step.kernel, step.operands, step.parameters):
            found = find_shared_memory(written, step.operands[:8], offsets)
            if found is not None:
                return found
    return None


def _refuse(origin: NodeOrigin, wrong: str | None) -> None:
    if wrong is not None:
        raise damaged(f"{origin.op} (node {origin.name!r}): {wrong}")


def most_bytes() -> int:
    """Return how many bytes memory of a plan may have: no more than the machine has."""
    return min(memory_bytes() or 1 << 48, 1 << 48)


def count_of(number: Any, least: int, most: int) -> int:
    """Return a number of a record; raises BlobError for anything else, and beyond its bounds."""
    if type(number) is not int or not least <= number <= most:
        raise damaged(f"{number!r:.30} is no number from {least} to {most}")
    return number
