"""The table that the native code runs a plan's steps by, but for the addresses.

A table is a list of words (steps.c), and most of them are the same in all plans of one template:
which step comes where, which operand is whose. So a table is held as a form, which such plans
share, and the parts that differ: numbers, buffers, descriptors and primitives. The form says of
each word from which part it comes, and a program (programs/program.py) puts all parts into one
array, with the addresses of its stream, from which it takes the words at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from ....runtime.graph.sym_int import has_sym_ints, identity_of
from ..native.step_runner import KIND_END, KIND_PARTS, KIND_PRIMITIVE
from ..onednn.bindings import Desc, Engine, Primitive, PrimitiveDesc
from .operand_layout import Buffer, Operand
from .steps import NativeStep, NumpyStep, PrimitiveStep, Step

__all__ = ["ReplayedSteps", "Segment", "StepTable", "TableForm"]

Array = np.ndarray[Any, Any]

NUMBER, SIZE, PLACE, PRIMITIVE, MEMORY, ARGUMENTS, KERNEL = range(7)
"""Where a word comes from: a number, a buffer's bytes, an operand's place, a handle, an address."""


class Segment(NamedTuple):
    """The words of one native call: the part that each comes from, and its index there."""

    parts: Array
    indices: Array
    first_step: int
    step_count: int


class TableForm(NamedTuple):
    """What the tables of plans with the same steps have in common. Indices are into the parts."""

    segments: tuple[Segment | int, ...]
    """In the order of the run; an index is that of a numpy step."""
    kernels: tuple[str, ...]
    bases: Array
    """Of each buffer: 0, or k for the run's k-th array."""
    operands: Array
    """Of each operand: its buffer, and the number that is its offset."""
    memories: Array
    """Of each memory object: its operand, its descriptor, and the number that is its bytes."""
    roles: Array
    """Of each argument of a primitive."""
    arguments: Array
    """Of each argument of a primitive: its memory object."""
    moves: Array
    """Of each operand that a primitive takes part by part: its number, and the numbers that are the
    bytes of a part, how many there are, and the bytes from one to the next."""


class StepTable(NamedTuple):
    """A form with the parts of one plan."""

    form: TableForm
    numbers: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    descs: tuple[Desc, ...]
    primitive_descs: tuple[PrimitiveDesc, ...]
    primitives: tuple[Primitive, ...]

    @classmethod
    def of(
        cls,
        steps: Sequence[Step],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        engine: Engine,
    ) -> StepTable:
        """Make the table of steps, whose numbers may be SymInts."""
        return _TableBuilder(inputs, outputs, engine).build(steps)


class ReplayedSteps(Sequence[Step]):
    """The steps of a plan that a template made: each is made when it is asked for."""

    def __init__(
        self, table: StepTable, steps: Sequence[Step], make: Callable[[Step], Step]
    ) -> None:
        self.table = table
        self._steps, self._make = steps, make
        self._made: dict[int, Step] = {}

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        step = self._steps[index]
        made = self._made.get(id(step))
        return self._made.setdefault(id(step), self._make(step)) if made is None else made


class _Numbered:
    """Numbers things in the order in which they come first."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._known: dict[Hashable, int] = {}

    def index(self, key: Hashable, item: Any) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.items)
            self.items.append(item)
        return found

    def indices(self, items: Sequence[Hashable]) -> list[int]:
        """Number things that are keys themselves."""
        known = self._known
        for item in items:
            if item not in known:
                known[item] = len(self.items)
                self.items.append(item)
        return [known[item] for item in items]


class _TableBuilder:
    def __init__(
        self, inputs: Sequence[Operand], outputs: Sequence[Operand], engine: Engine
    ) -> None:
        self._engine = engine
        self._inputs, self._outputs = inputs, outputs
        self._numbers, self._buffers = _Numbered(), _Numbered()
        self._operands, self._layouts, self._memories = _Numbered(), _Numbered(), _Numbered()
        self._known: dict[int, int] = {}
        """The numbers of operands by their identity: most are those of several steps."""
        self._descs, self._kernels, self._primitives = _Numbered(), _Numbered(), _Numbered()
        self._arguments: list[tuple[int, int]] = []
        self._moves: list[tuple[int, int, int, int]] = []
        self._segments: list[Segment | int] = []
        self._bound: dict[int, tuple[int, int]] = {}
        """Of each memory object on arrays of the run, in this segment: its base and operand."""
        self._parts: list[int] = []
        self._indices: list[int] = []

    def build(self, steps: Sequence[Step]) -> StepTable:
        for port in (*self._inputs, *self._outputs):
            self._buffer(port.buffer)
        first = 0
        for index, step in enumerate(steps):
            if isinstance(step, NumpyStep):
                if index > first:
                    self._end_segment(first, index - first)
                self._segments.append(index)
                first = index + 1
            elif isinstance(step, PrimitiveStep):
                self._add_primitive(step)
            else:
                self._add_kernel(step)
        if len(steps) > first or not self._segments:
            self._end_segment(first, len(steps) - first)
        primitives = self._primitives.items
        return StepTable(
            TableForm(
                tuple(self._segments),
                tuple(self._kernels.items),
                np.array([self._base(buffer) for buffer in self._buffers.items], np.int64),
                _rows(self._operands.items, 2),
                _rows(self._memories.items, 3),
                np.array([role for role, _ in self._arguments], np.int32),
                np.array([memory for _, memory in self._arguments], np.int64),
                _rows(self._moves, 4),
            ),
            tuple(self._numbers.items),
            tuple(self._buffers.items),
            tuple(self._descs.items),
            tuple([desc for desc, _ in primitives]),
            tuple([primitive for _, primitive in primitives]),
        )

    def _end_segment(self, first: int, count: int) -> None:
        """Put head and bindings before the words of the steps, and the end behind them."""
        parts, indices, self._parts, self._indices = self._parts, self._indices, [], []
        ports = [*self._inputs, *self._outputs]
        self._add(len(ports), len(self._inputs))
        for port in ports:
            self._add_word(SIZE, self._buffer(port.buffer))
        self._add(len(self._bound))
        for memory, (base, operand) in self._bound.items():
            self._add_word(MEMORY, memory)
            self._add(base)
            self._add_word(PLACE, operand)
        self._parts += parts
        self._indices += indices
        self._add(KIND_END, 2)
        self._segments.append(
            Segment(np.array(self._parts, np.int64), np.array(self._indices), first, count)
        )
        self._parts, self._indices, self._bound = [], [], {}

    def _add_primitive(self, step: PrimitiveStep) -> None:
        first = len(self._arguments)
        moves = step.moves or (0,) * len(step.arguments)
        moving: list[tuple[int, Operand, int]] = []
        for (role, operand), move in zip(step.arguments, moves, strict=True):
            memory = self._memory(operand, moves=bool(move))
            self._arguments.append((role, memory))
            if move:
                moving.append((memory, operand, move))
        if moving:
            self._add(KIND_PARTS, 6 + 4 * len(moving))
        else:
            self._add(KIND_PRIMITIVE, 5)
        pair = step.desc, step.primitive
        self._add_word(PRIMITIVE, self._primitives.index(tuple(map(id, pair)), pair))
        self._add(len(step.arguments))
        self._add_word(ARGUMENTS, first)
        if moving:
            self._add_moves(step.part_count, moving)

    def _add_moves(self, part_count: int, moving: Sequence[tuple[int, Operand, int]]) -> None:
        self._add(part_count)
        for memory, operand, move in moving:
            place = self._operand(operand)
            self._add_word(MEMORY, memory)
            self._add(self._base(operand.buffer))
            self._add_word(PLACE, place)
            self._add(move)
            size, count, distance = map(self._number, (operand.layout.size_bytes, part_count, move))
            self._moves.append((place, size, count, distance))

    def _add_kernel(self, step: NativeStep) -> None:
        self._add_word(KERNEL, self._kernels.index(step.kernel, step.kernel))
        count = len(step.operands)
        self._add(3 + 2 * count + len(step.parameters), count)
        for operand in step.operands:
            self._add(self._base(operand.buffer))
            self._add_word(PLACE, self._operand(operand))
        self._add(*step.parameters)

    def _memory(self, operand: Operand, moves: bool) -> int:
        """Number oneDNN's memory object; one on arrays of the run is of one segment.

        One that moves from part to part is bound by the steps that move it.
        """
        place, base = self._operand(operand), self._base(operand.buffer)
        layout = self._layouts.index(id(operand.layout), operand.layout)
        desc = operand.layout.desc(self._engine)
        row = place, self._descs.index(id(desc), desc), self._number(operand.layout.size_bytes)
        segment = len(self._segments) if base else -1
        memory = self._memories.index((place, layout, segment, moves), row)
        if base and not moves:
            self._bound[memory] = base, place
        return memory

    def _operand(self, operand: Operand) -> int:
        known = self._known.get(id(operand))
        if known is None:
            row = self._buffer(operand.buffer), self._number(operand.offset_bytes)
            known = self._known[id(operand)] = self._operands.index(row, row)
        return known

    def _buffer(self, buffer: Buffer) -> int:
        return self._buffers.index(buffer, buffer)

    def _base(self, buffer: Buffer) -> int:
        if buffer.kind == "input":
            return buffer.index + 1
        return len(self._inputs) + buffer.index + 1 if buffer.kind == "output" else 0

    def _number(self, number: int) -> int:
        return self._numbers.index(identity_of(number), number)

    def _add(self, *numbers: int) -> None:
        self._parts += [NUMBER] * len(numbers)
        if has_sym_ints(numbers):
            self._indices += [self._number(number) for number in numbers]
        else:
            self._indices += self._numbers.indices(numbers)

    def _add_word(self, part: int, index: int) -> None:
        self._parts.append(part)
        self._indices.append(index)


def _rows(rows: Sequence[tuple[int, ...]], width: int) -> Array:
    return np.array(rows, np.int64).reshape(-1, width)
