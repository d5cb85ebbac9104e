"""A plan bound to one stream: addresses in place of operands, ready to be run by one native call.

Theory of operation. A plan says that a step reads a buffer; a program says where that buffer is,
for one stream and its arena. It holds oneDNN's memory objects and the step table (steps.c), and
belongs to that stream's thread: two streams run two programs of the same plan side by side. A numpy
step splits the table into segments.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DeviceError, TensorError
from ...runtime.lowering import NodeOrigin
from .lane_team import LaneTeam
from .native import KIND_END, KIND_PRIMITIVE, STATUS_INDEX, Runner, failure_text, view_at
from .onednn import ExecArg, Memory
from .operand import Operand
from .plan import NativeStep, NumpyStep, Plan, PrimitiveStep, Step

__all__ = ["Program"]

Array = np.ndarray[Any, Any]
Reference = tuple[int, int]


@dataclass(frozen=True)
class _Segment:
    """A table for one native call."""

    table: Array
    first_step: int
    step_count: int


@dataclass(frozen=True)
class _Call:
    """A numpy step: its arrays are views of the arena, or are looked up in the run's buffers."""

    function: Callable[..., None]
    operands: tuple[Operand, ...]
    first_step: int


class Program:
    """Runs one plan on one stream; not thread-safe, and holds addresses into ``arena``.

    ``team`` is told how long runs take, if it wants to know.
    """

    def __init__(
        self, plan: Plan, runner: Runner, arena: Array, team: LaneTeam | None = None
    ) -> None:
        self.plan, self.arena = plan, arena
        self._team = team
        self._spent = None if team is None else np.zeros(2, np.int64)
        self._runner = runner
        self._base = arena.ctypes.data
        self._memories: list[Memory] = []
        self._known: dict[tuple[int, int, int], Memory] = {}
        self._bindings: list[int] = []
        self._binding_count = 0
        self._arguments: list[Any] = []
        self._parts = self._split(plan.steps)
        only = self._parts[0] if len(self._parts) == 1 else None
        self._only_table = only.table if isinstance(only, _Segment) else None
        self._run_table, self._thread_count = runner.run, plan.thread_count

    def run(self, buffers: tuple[Array, ...], times: Array | None = None) -> None:
        """Run all steps. Raises TensorError or DeviceError, which name the node.

        TensorError is for an index in the data that is out of range.
        ``buffers`` are the inputs, then the outputs, as C-contiguous arrays of plain types.
        ``times`` (int64, one more than steps) receives clock readings in nanoseconds.
        """
        table = self._only_table
        if self._team is not None:
            self._run_by_team(self._team, buffers, times)
        elif table is not None and times is None:
            failure = self._run_table(table, buffers, self._thread_count)
            if failure is not None:
                raise self._error(*failure)
        else:
            self._run_parts(buffers, times)

    def _run_by_team(self, team: LaneTeam, buffers: tuple[Array, ...], times: Array | None) -> None:
        assert self._spent is not None
        self._spent.fill(0)
        self._run_parts(buffers, times)
        wall_ns, caller_ns = self._spent.tolist()
        team.ran(self._thread_count, wall_ns, caller_ns)

    def _run_parts(self, buffers: tuple[Array, ...], times: Array | None) -> None:
        for part in self._parts:
            if isinstance(part, _Call):
                self._call(part, buffers, times)
                continue
            readings = None
            if times is not None:
                readings = times[part.first_step : part.first_step + part.step_count + 1]
            failure = self._run_table(
                part.table, buffers, self._thread_count, readings, self._spent
            )
            if failure is not None:
                status, index = failure
                raise self._error(status, part.first_step + index)

    def _error(self, status: int, step: int) -> TensorError | DeviceError:
        """Name the node whose step has failed."""
        origin, text = self.plan.steps[step].origin, failure_text(status)
        return _bad_index(origin, text) if status == STATUS_INDEX else _failed(origin, text)

    def _call(self, part: _Call, buffers: Sequence[Array], times: Array | None) -> None:
        origin = self.plan.steps[part.first_step].origin
        arrays = [self._array(operand, buffers) for operand in part.operands]
        if times is not None:
            times[part.first_step] = time.perf_counter_ns()
        try:
            with np.errstate(all="ignore"):
                part.function(*arrays)
        except IndexError as error:
            raise _bad_index(origin, str(error)) from error
        except Exception as error:
            raise _failed(origin, str(error)) from error
        if times is not None:
            times[part.first_step + 1] = time.perf_counter_ns()

    def _array(self, operand: Operand, buffers: Sequence[Array]) -> Array:
        base, place = self._reference(operand)
        layout = operand.layout
        assert layout.strides is not None
        if base:
            memory = buffers[base - 1].reshape(-1).view(np.uint8)[place:]
        else:
            memory = view_at(place, layout.size_bytes)
        dtype = layout.dtype.numpy
        strides = tuple(stride * dtype.itemsize for stride in layout.strides)
        if not layout.count:
            return np.empty(layout.shape, dtype)
        return np.ndarray(layout.shape, dtype, memory, 0, strides)

    def _split(self, steps: Sequence[Step]) -> list[_Segment | _Call]:
        parts: list[_Segment | _Call] = []
        words: list[int] = []
        first = 0
        for index, step in enumerate(steps):
            if isinstance(step, NumpyStep):
                if index > first:
                    parts.append(self._segment(words, first, index - first))
                parts.append(_Call(step.function, step.operands, index))
                words, first = [], index + 1
            else:
                words += self._words(step)
        if len(steps) > first or not parts:
            parts.append(self._segment(words, first, len(steps) - first))
        return parts

    def _segment(self, words: list[int], first: int, count: int) -> _Segment:
        table = [self._binding_count, *self._bindings, *words, KIND_END, 2]
        self._bindings, self._binding_count, self._known = (
            [],
            0,
            {key: memory for key, memory in self._known.items() if key[0] == 0},
        )
        return _Segment(np.array(table, np.int64), first, count)

    def _words(self, step: PrimitiveStep | NativeStep) -> list[int]:
        if isinstance(step, PrimitiveStep):
            arguments = (ExecArg * len(step.arguments))(
                *(ExecArg(role, self._memory(operand)) for role, operand in step.arguments)
            )
            self._arguments.append(arguments)
            address = ctypes.addressof(arguments)
            return [KIND_PRIMITIVE, 5, step.primitive.handle, len(step.arguments), address]
        references = [word for item in step.operands for word in self._reference(item)]
        payload = [len(step.operands), *references, *step.parameters]
        return [self._runner.kind(step.kernel), 2 + len(payload), *payload]

    def _memory(self, operand: Operand) -> int:
        """Make oneDNN's memory object; one on the run's own arrays is bound anew in each run."""
        base, place = self._reference(operand)
        desc = operand.layout.desc(self.plan.engine)
        key = (base, place, id(operand.layout))
        memory = self._known.get(key)
        if memory is None:
            memory = Memory(self.plan.engine, desc, 0 if base else place)
            self._known[key] = memory
            self._memories.append(memory)
            if base:
                self._bindings += [memory.handle, base, place]
                self._binding_count += 1
        return memory.handle

    def _reference(self, operand: Operand) -> Reference:
        """Give an operand's place: (0, address), or (k, offset) in the run's k-th buffer."""
        buffer = operand.buffer
        if buffer.kind == "arena":
            return 0, self._base + self.plan.offsets[buffer] + operand.offset_bytes
        if buffer.kind == "constant":
            assert buffer.array is not None
            return 0, buffer.array.ctypes.data + operand.offset_bytes
        inputs = len(self.plan.inputs)
        place = buffer.index if buffer.kind == "input" else inputs + buffer.index
        return place + 1, operand.offset_bytes


def _failed(origin: NodeOrigin, text: str) -> DeviceError:
    return DeviceError(f"CPU failed in {origin.op} (node {origin.name!r}): {text}")


def _bad_index(origin: NodeOrigin, text: str) -> TensorError:
    return TensorError(
        f"CPU failed in {origin.op} (node {origin.name!r}): {text}; check its index inputs"
    )
