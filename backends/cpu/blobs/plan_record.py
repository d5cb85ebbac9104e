"""A plan in a blob: layouts, buffers, operands and steps as numbered rows, constants as tensors.

Theory of operation. A plan is what it was built as, but for addresses and oneDNN's objects, which
are made again in the order in which they were made. So nothing is lowered, fused or packed when a
network is imported. What is read is held to the same bounds as what is built: each step to the
buffers of its operands, each call of oneDNN to the arguments that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....errors import AioInferError, BlobError, NotSupportedError
from ....executors import StreamsConfig, is_shortage
from ....runtime.blobs.graph_record import read_model_record, write_model_record
from ....runtime.blobs.reader import Blob
from ....runtime.blobs.tensors_record import (
    TensorReader,
    TensorWriter,
    damaged,
    dtype_of,
    lengths_of,
)
from ....runtime.blobs.writer import BlobWriter
from ....runtime.graph import Graph, Model, copy_graph
from ....runtime.graph.mapped_file import read_constants
from ....runtime.graph.stand_ins import release_constants
from ....runtime.lowering.node_operands import NodeOrigin
from ....runtime.network.export import package_version
from ..onednn.bindings import Desc, Engine, version_text
from ..plans.growing_states import GrowingState
from ..plans.operand_layout import Buffer, Layout, Operand
from ..plans.packed_weights import PackedWeight, WeightStore
from ..plans.plan import Description, Plan
from ..plans.step_bounds import (
    find_missing_argument,
    find_native_overrun,
    find_primitive_overrun,
)
from ..plans.steps import NativeStep, NumpyStep, PrimitiveStep, Step
from .onednn_record import OneDnnReader, OneDnnWriter

__all__ = ["ONLY_PLAN", "plan_facts", "read_plan", "read_planned_model", "write_plan"]

ONLY_PLAN = "only_plan"
"""What the frames of a network begin with that has let go of its model."""

_FRAME = "plan"


def write_plan(blob: BlobWriter, plan: Plan, model: Model) -> None:
    """Add a plan, whose weights are packed; ``model`` is of its operator sets.

    Raises NotSupportedError for a step that a function of Python computes.
    """
    tensors = TensorWriter(blob)
    writer = _PlanWriter(tensors)
    content = writer.plan(plan)
    tensors.finish()
    blob.add_json(_FRAME, content)
    graph = copy_graph(plan.graph)
    release_constants(graph)
    write_model_record(blob.under("graph"), model.with_graph(graph))


def read_plan(
    blob: Blob, graph: Graph, engine: Engine, weights: WeightStore, streams: StreamsConfig
) -> Plan:
    """Read a plan; its primitives are compiled on this thread, its constants stay in the blob.

    ``graph`` is that of ``read_planned_model``; ``streams`` are those that runs compute on.
    Raises BlobError for what ``write_plan`` does not write, and for what this machine's oneDNN does
    otherwise.
    """
    content = blob.json(_FRAME)
    try:
        thread_count = _count(content["thread_count"], 1, 4096)
        _refuse_larger_team(thread_count, streams)
        with engine.with_threads(thread_count):
            reader = _PlanReader(engine, weights, TensorReader(blob), content)
            steps = [reader.step(row) for row in content["steps"]]
        inputs = [reader.operand(number) for number in content["inputs"]]
        outputs = [reader.operand(number) for number in content["outputs"]]
        layouts = {
            str(name): reader.layout(number) for name, number in content["layouts_by_name"].items()
        }
        _check_ports(inputs, [value.type for value in graph.inputs], "input")
        _check_ports(outputs, [value.type for value in graph.outputs], "output")
        names = [str(name) for name in content["output_names"]]
        if len(names) != len(outputs):
            raise damaged("its plan has outputs without names")
        growing = [
            GrowingState(*[_count(number, 0, len(inputs) + len(outputs)) for number in row])
            for row in content["growing"]
        ]
        return Plan(
            engine=engine,
            description=Description.of(
                graph, layouts, dtype_of(content["float_dtype"]), str(content["id"])
            ),
            steps=tuple(steps),
            inputs=inputs,
            outputs=outputs,
            output_names=names,
            offsets=reader.offsets(content["offsets"]),
            arena_bytes=_count(content["arena_bytes"], 0, 1 << 48),
            thread_count=thread_count,
            weights=tuple(reader.packed),
            growing=growing,
            in_place=[growing[number] for number in content["in_place"]],
        )
    except BlobError:
        raise
    except AioInferError as error:
        if is_shortage(error):
            raise
        raise damaged(f"its plan contradicts itself: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise damaged(f"its plan cannot be read ({type(error).__name__}: {error})") from error


def read_planned_model(blob: Blob) -> Model:
    """Read the graph of a plan, as the model of its network; large constants are stand-ins.

    The others are copied, so that a graph, whose nodes hold each other, holds no file.
    """
    model = read_model_record(blob.under("graph"))
    read_constants(model.graph)
    return model


def plan_facts(engine: Engine) -> dict[str, Any]:
    """Tell what a plan relies on: our own kernels, oneDNN, and the instructions that it uses."""
    return {
        "aioinfer": package_version(),
        "oneDNN": version_text(engine.version),
        "instruction set": engine.instruction_set,
    }


class _Table:
    """Numbers things in the order in which they come first, and writes a row of each."""

    def __init__(self, row_of: Callable[[Any], list[Any]]) -> None:
        self.rows: list[list[Any]] = []
        self._row_of = row_of
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []

    def number(self, item: Any, key: Any = None) -> int:
        key = id(item) if key is None else key
        known = self._numbers.get(key)
        if known is None:
            row = self._row_of(item)
            known = self._numbers[key] = len(self.rows)
            self._held.append(item)
            self.rows.append(row)
        return known


class _PlanWriter:
    def __init__(self, tensors: TensorWriter) -> None:
        self._tensors = tensors
        self._onednn = OneDnnWriter()
        self._layouts = _Table(self._layout_row)
        self._buffers = _Table(self._buffer_row)
        self._operands = _Table(self._operand_row)
        self._packed: dict[int, PackedWeight] = {}

    def plan(self, plan: Plan) -> dict[str, Any]:
        self._packed = {id(weight.buffer): weight for weight in plan.weights}
        growing = list(plan.growing)
        steps = [self._step_row(step) for step in plan.steps]
        return {
            "steps": steps,
            "inputs": [self._operand(operand) for operand in plan.inputs],
            "outputs": [self._operand(operand) for operand in plan.outputs],
            "output_names": list(plan.output_names),
            "layouts_by_name": {
                name: self._layouts.number(layout) for name, layout in plan.layouts.items()
            },
            "offsets": [
                [self._buffers.number(buffer), offset] for buffer, offset in plan.offsets.items()
            ],
            "arena_bytes": plan.arena_bytes,
            "thread_count": plan.thread_count,
            "float_dtype": plan.description.float_dtype.label,
            "id": plan.id,
            "growing": [[state.input, state.output, state.axis] for state in growing],
            "in_place": [growing.index(state) for state in plan.in_place],
            "layouts": self._layouts.rows,
            "buffers": self._buffers.rows,
            "operands": self._operands.rows,
            "onednn": self._onednn.rows,
        }

    def _step_row(self, step: Step) -> list[Any]:
        origin = step.origin
        row = [origin.name, origin.op, list(origin.original_nodes), origin.is_delivery]
        if isinstance(step, PrimitiveStep):
            arguments = [[role, self._operand(operand)] for role, operand in step.arguments]
            writes = [self._operand(operand) for operand in step.writes]
            return ["primitive", row, self._onednn.primitive_desc(step.desc), arguments, writes]
        if isinstance(step, NumpyStep):
            raise NotSupportedError(
                f"{origin.op} (node {origin.name!r}) is computed by a function of Python, which no "
                f"blob can hold; load the network with EXPORTABLE=True",
                node=origin.name,
                op=origin.op,
            )
        operands = [self._operand(operand) for operand in step.operands]
        return ["native", row, step.kernel, operands, list(map(int, step.parameters))]

    def _operand(self, operand: Operand) -> int:
        key = id(operand.buffer), id(operand.layout), operand.offset_bytes
        return self._operands.number(operand, key)

    def _operand_row(self, operand: Operand) -> list[Any]:
        buffer = self._buffers.number(operand.buffer)
        return [buffer, self._layouts.number(operand.layout), operand.offset_bytes]

    def _layout_row(self, layout: Layout) -> list[Any]:
        desc, strides = layout.own_desc, layout.strides
        return [
            list(layout.shape),
            layout.dtype.label,
            None if strides is None else list(strides),
            None if desc is None else self._onednn.desc(desc),
        ]

    def _buffer_row(self, buffer: Buffer) -> list[Any]:
        tensor, packed = None, None
        if buffer.kind == "constant":
            if buffer.array is None:
                raise NotSupportedError("a weight of the plan is not packed yet; run it once")
            tensor = self._tensors.add(buffer.array)
            weight = self._packed.get(id(buffer))
            packed = None if weight is None else self._onednn.desc(weight.desc)
        return [buffer.kind, buffer.size_bytes, buffer.index, buffer.is_of_plan, tensor, packed]


class _PlanReader:
    def __init__(
        self,
        engine: Engine,
        weights: WeightStore,
        tensors: TensorReader,
        content: Mapping[str, Any],
    ) -> None:
        self._weights, self._tensors = weights, tensors
        self.packed: list[PackedWeight] = []
        self._onednn = OneDnnReader(engine, content["onednn"])
        self._layouts = [self._make_layout(row) for row in content["layouts"]]
        self._buffers = [self._make_buffer(row) for row in content["buffers"]]
        self._operands = [self._make_operand(row) for row in content["operands"]]

    def layout(self, number: Any) -> Layout:
        return self._layouts[_count(number, 0, len(self._layouts) - 1)]

    def operand(self, number: Any) -> Operand:
        return self._operands[_count(number, 0, len(self._operands) - 1)]

    def offsets(self, rows: Any) -> dict[Buffer, int]:
        found = {self._buffer(number): _count(offset, 0, 1 << 48) for number, offset in rows}
        for buffer in self._buffers:
            if buffer.kind == "arena" and buffer not in found:
                raise damaged("a buffer of its plan has no place in the arena")
        return found

    def step(self, row: Sequence[Any]) -> Step:
        kind, (name, op, originals, is_delivery), *rest = row
        origin = NodeOrigin(str(name), str(op), tuple(map(str, originals)), bool(is_delivery))
        if kind == "primitive":
            number, pairs, written = rest
            desc = self._onednn.primitive_desc(number)
            arguments = tuple(
                [(_count(role, 0, 1 << 20), self.operand(place)) for role, place in pairs]
            )
            _refuse(origin, find_primitive_overrun(desc, arguments))
            _refuse(origin, find_missing_argument(desc, dict(arguments)))
            writes = tuple([self.operand(place) for place in written])
            return PrimitiveStep(origin, desc, desc.create(), arguments, writes)
        if kind != "native":
            raise damaged(f"there is no step of kind {kind!r:.20}")
        kernel, places, parameters = rest
        operands = tuple([self.operand(place) for place in places])
        words = tuple([_count(word, -(1 << 63), (1 << 63) - 1) for word in parameters])
        _refuse(origin, find_native_overrun(kernel, operands, words))
        return NativeStep(origin, kernel, operands, words)

    def _make_layout(self, row: Sequence[Any]) -> Layout:
        shape, label, strides, desc = row
        dtype, lengths = dtype_of(label), tuple(lengths_of(shape, "a layout"))
        own = None if desc is None else self._onednn.desc(desc)
        if strides is None:
            if own is None or own.dims != lengths or own.dtype is not dtype:
                raise damaged(f"a layout of {list(lengths)} has no order in memory")
            return Layout.of(own)
        steps = tuple([_count(step, -(1 << 62), 1 << 62) for step in strides])
        if len(steps) != len(lengths):
            raise damaged(f"a layout of {len(lengths)} axes has {len(steps)} strides")
        if own is not None and (own.dims != lengths or own.strides != steps):
            raise damaged(f"a layout of {list(lengths)} is not that of its descriptor")
        return Layout(lengths, dtype, steps, own)

    def _make_buffer(self, row: Sequence[Any]) -> Buffer:
        kind, size_bytes, index, is_of_plan, tensor, packed = row
        if kind not in ("arena", "constant", "input", "output"):
            raise damaged(f"there is no buffer of kind {kind!r:.20}")
        size = _count(size_bytes, 0, 1 << 48)
        if kind != "constant":
            return Buffer(kind, size, index=_count(index, 0, 1 << 20))
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
        return Buffer("constant", size, array=array, is_of_plan=bool(is_of_plan))

    def _make_operand(self, row: Sequence[Any]) -> Operand:
        buffer, layout, offset = row
        return Operand(self._buffer(buffer), self.layout(layout), _count(offset, 0, 1 << 48))

    def _buffer(self, number: Any) -> Buffer:
        return self._buffers[_count(number, 0, len(self._buffers) - 1)]


def _check_ports(operands: Sequence[Operand], types: Sequence[Any], kind: str) -> None:
    """Raise BlobError unless the plan reads arrays of the types that the network checks."""
    if len(operands) != len(types):
        raise damaged(f"its plan has {len(operands)} {kind}s, and its graph {len(types)}")
    for operand, wanted in zip(operands, types, strict=True):
        if (operand.dtype, operand.shape) != (wanted.dtype, wanted.shape):
            raise damaged(f"an {kind} of its plan is {operand.layout}, and {wanted} in its graph")


def _refuse_larger_team(thread_count: int, streams: StreamsConfig) -> None:
    """Raise BlobError for a plan that no stream has the threads for."""
    if thread_count > streams.thread_count:
        raise BlobError(
            f"the plan of the blob computes with {thread_count} threads, and each of "
            f"{streams.stream_count} streams of {streams.name} has {streams.thread_count}; import "
            f"it with INFERENCE_NUM_THREADS={thread_count * streams.stream_count} or more, or load "
            f"the model",
            device=streams.name,
        )


def _refuse(origin: NodeOrigin, wrong: str | None) -> None:
    if wrong is not None:
        raise damaged(f"{origin.op} (node {origin.name!r}): {wrong}")


def _count(number: Any, least: int, most: int) -> int:
    if type(number) is not int or not least <= number <= most:
        raise damaged(f"{number!r:.30} is no number from {least} to {most}")
    return number
