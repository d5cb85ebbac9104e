"""A plan bound to one stream: addresses in place of operands, ready to be run by one native call.

A plan says that a step reads a buffer; a program says where that buffer is, for one stream and its
arena. It holds oneDNN's memory objects and the step table (steps.c), and belongs to that stream's
thread. A numpy step splits the table into segments.

Whatever the plan says, no address is written here that does not lie in its memory: places in the
arena and in constants are checked against what there is, and the arrays of a run against the bytes
that the plan reads and writes, which stand at the head of each table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....errors import AioInferError, DeviceError, GraphError, TensorError
from ....executors.late_imports import late_imports
from ....runtime.lowering.node_operands import NodeOrigin
from ....runtime.runs.atomic_run import AtomicTerms, Attempt
from ....runtime.runs.stage import Stop
from ..native.step_runner import (
    MOST_ATOMIC_ARRAYS,
    STATUS_BUFFER,
    STATUS_INDEX,
    STATUS_REGION,
    STATUS_STOPPED,
    Memories,
    StepRunner,
    failure_text,
)
from ..onednn.bindings import ExecArg
from ..plans.operand_layout import Buffer, Operand
from ..plans.plan import Form, Plan
from ..plans.step_table import Segment
from ..plans.steps import NumpyStep
from .lane_team import LaneTeam

__all__ = ["Program"]

Array = np.ndarray[Any, Any]
Reference = tuple[int, int]

_NEVER = Stop()
RUN_WEIGHT = 2  # the latest run counts for a half
_ARGUMENT = np.dtype(ExecArg)


class _Segment(NamedTuple):
    """A table for one native call."""

    table: Array
    first_step: int
    step_count: int


class _Call(NamedTuple):
    """A numpy step: its arrays are views of the arena, or are looked up in the run's buffers."""

    function: Callable[..., None]
    operands: tuple[Operand, ...]
    first_step: int


class Program:
    """Runs one plan on one stream; not thread-safe, and holds addresses into ``arena``.

    ``team`` is called with how long runs take, if it wants to know; ``run_ns`` is then how
    long their caller had a CPU of late.
    """

    def __init__(
        self, plan: Plan, runner: StepRunner, arena: Array, team: LaneTeam | None = None
    ) -> None:
        self.plan, self.arena = plan, arena
        self._team = team
        self.run_ns = 0
        self._spent = None if team is None else np.zeros(1, np.int64)
        self._runner = runner
        self._base = arena.ctypes.data
        ports = [*plan.inputs, *plan.outputs]
        self._head = [len(ports), len(plan.inputs), *(port.buffer.size_bytes for port in ports)]
        self._parts = self._bind()
        only = self._parts[0] if len(self._parts) == 1 else None
        self._only_table = only.table if isinstance(only, _Segment) else None
        self._run_table, self._thread_count = runner.run, plan.thread_count

    def named_by(self, plan: Plan) -> Program:
        """Return the same for a plan that is alike, for the same stream."""
        made = copy(self)
        made.plan, made.run_ns = plan, 0
        return made

    def run(
        self, buffers: tuple[Array, ...], stop: Stop = _NEVER, times: Array | None = None
    ) -> None:
        """Run all steps. Raises TensorError or DeviceError, which name the node.

        Once ``stop`` is set no further step begins, and its error is raised; what was written until
        then is of no use to the caller and no harm to the next run.

        TensorError is for an index in the data that is out of range, and for an array that is not
        as the plan wants it; then nothing has been run.
        ``buffers`` are the inputs, then the outputs, as C-contiguous arrays of plain types.
        ``times`` (int64, one more than steps) receives clock readings in nanoseconds.
        """
        table = self._only_table
        if self._team is not None:
            self._run_by_team(self._team, buffers, stop, times)
        elif table is not None and times is None:
            try:
                failure = self._run_table(table, buffers, self._thread_count, stop.word)
            except (BufferError, TypeError, ValueError) as error:
                raise self.unreadable(error) from error
            if failure is not None:
                raise self._error(*failure, 0, buffers, stop)
        else:
            self._run_parts(buffers, stop, times)

    def atomic_calls(
        self,
        inputs: Mapping[str, Form],
        outputs: Sequence[Form],
        results: Sequence[tuple[str, int, Callable[[Array], Any] | None]],
        make_array: Callable[..., Array],
    ) -> Callable[[AtomicTerms], Attempt] | None:
        """Return what makes, of their terms, the call that makes runs of such arrays.

        See atomic_runs.c. None: there are too many arrays, the plan is not of one table, or its
        team wants to know how long it takes.
        """
        if self._only_table is None or self._team is not None:
            return None
        if len(inputs) + len(outputs) > MOST_ATOMIC_ARRAYS:
            return None
        return partial(
            self._runner.atomic_runs,
            self._only_table,
            self._thread_count,
            inputs,
            outputs,
            results,
            make_array,
        )

    def _run_by_team(
        self, team: LaneTeam, buffers: tuple[Array, ...], stop: Stop, times: Array | None
    ) -> None:
        assert self._spent is not None
        self._spent.fill(0)
        self._run_parts(buffers, stop, times)
        caller_ns = int(self._spent[0])
        self.run_ns += (caller_ns - self.run_ns) // RUN_WEIGHT if self.run_ns else caller_ns
        team.ran(self._thread_count, caller_ns)

    def _run_parts(self, buffers: tuple[Array, ...], stop: Stop, times: Array | None) -> None:
        if isinstance(self._parts[0], _Call):
            self._check(buffers)
        for part in self._parts:
            if isinstance(part, _Call):
                stop.raise_if_set()
                self._call(part, buffers, times)
                continue
            readings = None
            if times is not None:
                readings = times[part.first_step : part.first_step + part.step_count + 1]
            try:
                failure = self._run_table(
                    part.table, buffers, self._thread_count, stop.word, readings, self._spent
                )
            except (BufferError, TypeError, ValueError) as error:
                raise self.unreadable(error) from error
            if failure is not None:
                raise self._error(*failure, part.first_step, buffers, stop)

    def _check(self, buffers: Sequence[Array]) -> None:
        """Ask of the arrays what a native call asks."""
        count, _, *lengths = self._head
        for index, (array, length) in enumerate(zip(buffers, lengths, strict=False)):
            if array.nbytes != length:
                raise self._wrong_array(index, buffers)
            if not array.flags.c_contiguous:
                raise self.unreadable(BufferError(f"array {index} is not contiguous"))
        if len(buffers) != count:
            raise self._wrong_array(min(len(buffers), count), buffers)

    def _error(
        self, status: int, index: int, first_step: int, buffers: Sequence[Array], stop: Stop
    ) -> BaseException:
        """Name the node whose step has failed, or the input or output whose array is wrong.

        Of a run that was stopped, return the error that it was stopped with.
        """
        if status == STATUS_STOPPED and stop.error is not None:
            return stop.error
        if status == STATUS_BUFFER:
            return self._wrong_array(index, buffers)
        step = first_step + index
        origin, text = self.plan.steps[step].origin, failure_text(status)
        if status == STATUS_INDEX:
            return _bad_input(origin, f"{text}; {_CHECK_INDICES}")
        return _bad_input(origin, text) if status == STATUS_REGION else _failed(origin, text)

    def _wrong_array(self, index: int, buffers: Sequence[Array]) -> TensorError:
        plan = self.plan
        ports, inputs = [*plan.inputs, *plan.outputs], len(plan.inputs)
        if len(buffers) != len(ports):
            return TensorError(
                f"CPU was given {len(buffers)} arrays for {inputs} inputs and "
                f"{len(plan.outputs)} outputs of a plan"
            )
        kind = "input" if index < inputs else "output"
        names = (*(value.name for value in plan.graph.inputs), *plan.output_names)
        port, given = ports[index], buffers[index]
        return TensorError(
            f"CPU was given {given.nbytes} bytes ({given.dtype}{list(given.shape)}) for {kind} "
            f"{names[index]!r}, which is {port.dtype.label}{list(port.shape)}, "
            f"{port.buffer.size_bytes} bytes; give an array of that type and shape",
            tensor=names[index],
            shape=given.shape,
            wanted_shape=port.shape,
            dtype=str(given.dtype),
            wanted_dtype=port.dtype.label,
        )

    @staticmethod
    def unreadable(error: Exception) -> TensorError:
        """Make the error for an array that native code cannot read or write."""
        return TensorError(
            f"CPU cannot read or write an array of a run: {error}; give C-contiguous arrays of the "
            f"types of the network's inputs and outputs"
        )

    def _call(self, part: _Call, buffers: Sequence[Array], times: Array | None) -> None:
        step = self.plan.steps[part.first_step]
        origin = step.origin
        arrays = [self._array(operand, buffers) for operand in part.operands]
        if times is not None:
            times[part.first_step] = time.perf_counter_ns()
        try:
            with np.errstate(all="ignore"):
                part.function(*arrays)
        except AioInferError:  # of a user's kernel, which names its node
            raise
        except IndexError as error:
            raise _bad_input(origin, f"{error}; {_CHECK_INDICES}") from error
        except Exception as error:
            node = step.node if isinstance(step, NumpyStep) else None
            if isinstance(error, ValueError) and node is not None:  # of what the operator was given
                with late_imports:
                    from ....runtime.operators.kernel_failure import explain

                read_count = sum(value is not None for value in node.inputs)
                raise explain(error, origin.name, origin.op, arrays[:read_count]) from error
            raise _failed(origin, str(error)) from error
        if times is not None:
            times[part.first_step + 1] = time.perf_counter_ns()

    def _array(self, operand: Operand, buffers: Sequence[Array]) -> Array:
        base, place = self._reference(operand)
        layout = operand.layout
        assert layout.strides is not None
        # A user's kernel may keep the array: it refers to what owns the memory.
        if base:
            memory = _bytes_of(buffers[base - 1])[place:]
        elif operand.buffer.array is not None:
            memory = _bytes_of(operand.buffer.array)[operand.offset_bytes :]
        else:
            memory = self.arena[place - self._base :]
        dtype = layout.dtype.numpy
        strides = tuple(stride * dtype.itemsize for stride in layout.strides)
        if not layout.count:
            return np.empty(layout.shape, dtype)
        return np.ndarray(layout.shape, dtype, memory, 0, strides)

    def _bind(self) -> list[_Segment | _Call]:
        """Put addresses into the plan's table. Raises GraphError for what is not in its memory."""
        table = self.plan.table
        form = table.form
        numbers = np.array(table.numbers, np.int64)
        sizes = np.array([buffer.size_bytes for buffer in table.buffers], np.int64)
        starts = np.array([self._place(buffer)[1] for buffer in table.buffers], np.int64)
        buffers, offsets = form.operands[:, 0], numbers[form.operands[:, 1]]
        is_out = (offsets < 0) | (offsets > sizes[buffers])
        if is_out.any():
            first = int(is_out.argmax())
            raise GraphError(f"byte {offsets[first]} is not in {table.buffers[buffers[first]]}")
        places = starts[buffers] + offsets
        self._check_moves(numbers, sizes[buffers] - offsets)
        self._memories = self._make_memories(numbers, sizes, places)
        memories = self._memories.handles
        # The arguments lie in one array, which the words point into.
        self._arguments = np.zeros(len(form.roles), _ARGUMENT)
        self._arguments["role"], self._arguments["memory"] = form.roles, memories[form.arguments]
        ends = np.arange(len(form.roles) + 1) * _ARGUMENT.itemsize
        parts = (
            numbers,
            sizes,
            places,
            np.array([primitive.handle for primitive in table.primitives], np.int64),
            memories,
            self._arguments.ctypes.data + ends,
            np.array([self._runner.kind(kernel) for kernel in form.kernels], np.int64),
        )
        first_words = np.cumsum([0, *map(len, parts[:-1])])
        words = np.concatenate(parts)
        return [self._part(item, words, first_words) for item in form.segments]

    def _check_moves(self, numbers: Array, rooms: Array) -> None:
        """Raise GraphError for operands whose last part is not in what is left of their buffer."""
        operands, size, count, move = self.plan.table.form.moves.T
        if not len(operands):
            return
        room = rooms[operands] - numbers[size]
        most = room // np.maximum(numbers[move], 1) + 1
        is_out = (room < 0) | (numbers[move] < 1) | (numbers[count] < 1) | (numbers[count] > most)
        if is_out.any():
            first = int(is_out.argmax())
            parts, step = numbers[count[first]], numbers[move[first]]
            raise GraphError(
                f"{parts} parts, one every {step} bytes, are not in {rooms[operands[first]]} bytes"
            )

    def _part(self, item: Segment | int, words: Array, first_words: Array) -> _Segment | _Call:
        if isinstance(item, Segment):
            chosen = words[first_words[item.parts] + item.indices]
            return _Segment(chosen, item.first_step, item.step_count)
        step = self.plan.steps[item]
        assert isinstance(step, NumpyStep)
        for operand in step.operands:
            end = operand.offset_bytes + operand.layout.size_bytes
            if not 0 <= operand.offset_bytes <= end <= operand.buffer.size_bytes:
                raise GraphError(
                    f"bytes {operand.offset_bytes} to {end} of {step.origin.op} (node "
                    f"{step.origin.name!r}) are not in {operand.buffer}"
                )
        return _Call(step.function, step.operands, item)

    def _make_memories(self, numbers: Array, sizes: Array, places: Array) -> Memories:
        """Make oneDNN's memory objects; those on the run's own arrays are bound anew in each."""
        table = self.plan.table
        form = table.form
        rows, descs = form.memories, table.descs
        operands = form.operands[rows[:, 0]]
        buffers = operands[:, 0]
        is_beyond = numbers[operands[:, 1]] + numbers[rows[:, 2]] > sizes[buffers]
        if is_beyond.any():
            first = int(is_beyond.argmax())
            raise GraphError(
                f"{descs[rows[first, 1]]} does not fit into {table.buffers[buffers[first]]}"
            )
        addresses = np.where(form.bases[buffers], 0, places[rows[:, 0]])
        handles = np.array([desc.handle for desc in descs], np.int64)
        return self._runner.memories(self.plan.engine, handles[rows[:, 1]], addresses)

    def _reference(self, operand: Operand) -> Reference:
        """Return an operand's place: (0, address), or (k, offset) in the run's k-th buffer."""
        base, place = self._place(operand.buffer)
        return base, place + operand.offset_bytes

    def _place(self, buffer: Buffer) -> Reference:
        """Find the memory of a buffer; GraphError if there is less than it takes."""
        if buffer.kind == "arena":
            offset, there = self.plan.offsets[buffer], self.arena.nbytes
            base, place = 0, self._base + offset
        elif buffer.kind == "constant":
            assert buffer.array is not None
            offset, there = 0, buffer.array.nbytes
            base, place = 0, buffer.array.__array_interface__["data"][0]
        else:
            index = buffer.index if buffer.kind == "input" else self._head[1] + buffer.index
            offset, there = 0, self._head[2 + index]
            base, place = index + 1, 0
        if offset < 0 or offset + buffer.size_bytes > there:
            raise GraphError(f"{buffer} does not lie in memory of {there} bytes")
        return base, place


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _failed(origin: NodeOrigin, text: str) -> DeviceError:
    text = f"CPU failed in {origin.op} (node {origin.name!r}): {text}"
    return DeviceError(text, device="CPU", node=origin.name, op=origin.op)


_CHECK_INDICES = "check its index inputs"


def _bad_input(origin: NodeOrigin, text: str) -> TensorError:
    text = f"CPU failed in {origin.op} (node {origin.name!r}): {text}"
    return TensorError(text, device="CPU", node=origin.name, op=origin.op)
