"""Plans as rows of a table in a blob: see plan_record.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ....errors import NotSupportedError
from ....runtime.blobs.tensors_record import TensorWriter
from ..plans.operand_layout import Buffer, Layout, Operand
from ..plans.packed_weights import PackedWeight
from ..plans.plan import Plan
from ..plans.steps import NumpyStep, PrimitiveStep, Step
from .node_record import NodesWriter
from .onednn_record import OneDnnWriter

__all__ = ["PlanWriter"]

T = TypeVar("T")


class _Table:
    """Numbers things in the order in which they come first, and writes a row of each.

    With ``places`` those with equal rows are one.
    """

    def __init__(self, places: dict[str, int] | None = None) -> None:
        self.rows: list[list[Any]] = []
        self._places = places
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []

    def number(self, item: T, row_of: Callable[[T], list[Any]], key: Any = None) -> int:
        key = id(item) if key is None else key
        known = self._numbers.get(key)
        if known is None:
            row = row_of(item)
            known = len(self.rows)
            if self._places is not None:
                known = self._places.setdefault(repr(row), known)
            self._numbers[key] = known
            self._held.append(item)
            if known == len(self.rows):
                self.rows.append(row)
        return known


class PlanWriter:
    """Writes one plan; ``nodes`` are those that functions of Python compute, to be added, too.

    Tensors may be shared with other plans.
    """

    def __init__(self, tensors: TensorWriter) -> None:
        self._tensors = tensors
        self._onednn = OneDnnWriter()
        self.nodes = NodesWriter()
        self._states: dict[int, int] = {}
        self._layouts = _Table({})
        self._buffers = _Table()
        self._operands = _Table({})
        self._packed: dict[int, PackedWeight] = {}

    def plan(self, plan: Plan) -> dict[str, Any]:
        """Return the plan's rows; NotSupportedError for what no blob can hold."""
        self._states = {id(state.places): index for index, state in enumerate(plan.written)}
        self._packed = {id(weight.buffer): weight for weight in plan.weights}
        growing = list(plan.growing)
        steps = [self._step_row(step) for step in plan.steps]
        return {
            "steps": steps,
            "inputs": [self._operand(operand) for operand in plan.inputs],
            "outputs": [self._operand(operand) for operand in plan.outputs],
            "output_names": list(plan.output_names),
            "layouts_by_name": {
                name: self._layout(layout) for name, layout in plan.layouts.items()
            },
            "offsets": [[self._buffer(buffer), offset] for buffer, offset in plan.offsets.items()],
            "arena_bytes": plan.arena_bytes,
            "thread_count": plan.thread_count,
            "float_dtype": plan.description.float_dtype.label,
            "id": plan.id,
            "growing": [
                [state.input, state.output, state.axis, int(state.is_window)] for state in growing
            ],
            "in_place": sorted(growing.index(state) for state in plan.in_place),
            "written": [[state.input, state.output] for state in plan.written],
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
            desc = self._onednn.primitive_desc(step.desc)
            parts = [int(step.part_count), *map(int, step.moves)]
            return ["primitive", row, desc, arguments, writes, parts]
        operands = [self._operand(operand) for operand in step.operands]
        if isinstance(step, NumpyStep):
            state = None if step.places is None else self._states[id(step.places)]
            return ["python", row, self.nodes.add(step), operands, state, step.knows_lengths]
        return ["native", row, step.kernel, operands, list(map(int, step.parameters))]

    def _operand(self, operand: Operand) -> int:
        key = id(operand.buffer), id(operand.layout), operand.offset_bytes
        return self._operands.number(operand, self._operand_row, key)

    def _operand_row(self, operand: Operand) -> list[Any]:
        buffer = self._buffer(operand.buffer)
        return [buffer, self._layout(operand.layout), operand.offset_bytes]

    def _layout(self, layout: Layout) -> int:
        return self._layouts.number(layout, self._layout_row)

    def _layout_row(self, layout: Layout) -> list[Any]:
        desc, strides = layout.own_desc, layout.strides
        return [
            list(layout.shape),
            layout.dtype.label,
            None if strides is None else list(strides),
            None if desc is None else self._onednn.desc(desc),
        ]

    def _buffer(self, buffer: Buffer) -> int:
        return self._buffers.number(buffer, self._buffer_row)

    def _buffer_row(self, buffer: Buffer) -> list[Any]:
        tensor, packed = None, None
        if buffer.kind == "constant":
            if buffer.array is None:
                raise NotSupportedError("a weight of the plan is not packed yet; run it once")
            tensor = self._tensors.add(buffer.array)
            weight = self._packed.get(id(buffer))
            packed = None if weight is None else self._onednn.desc(weight.desc)
        return [buffer.kind, buffer.size_bytes, buffer.index, buffer.is_of_plan, tensor, packed]
