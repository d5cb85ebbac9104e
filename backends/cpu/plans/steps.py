"""The steps of a plan: which code runs, on which operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ....runtime.graph import Node
from ....runtime.lowering.node_operands import NodeOrigin, place_spans, spans_of
from ....runtime.lowering.written_states import Places
from ..onednn.bindings import Primitive, PrimitiveDesc
from .operand_layout import Buffer, Operand

__all__ = ["NativeStep", "NumpyStep", "PrimitiveStep", "Step", "place_steps", "step_buffers"]


class PrimitiveStep(NamedTuple):
    """Run a primitive of oneDNN; arguments by role. ``desc`` is what it was compiled from."""

    origin: NodeOrigin
    desc: PrimitiveDesc
    primitive: Primitive
    arguments: tuple[tuple[int, Operand], ...]
    writes: tuple[Operand, ...]
    part_count: int = 1
    """How often it is executed, on one part of its operands after the other; the operands are those
    of the first."""
    moves: tuple[int, ...] = ()
    """Of each argument: the bytes from one part to the next, 0 if it stays; none for one part."""

    @property
    def implementation(self) -> str:
        """OneDNN's name of it."""
        return self.desc.implementation

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All that it touches."""
        return tuple(operand for _, operand in self.arguments)


class NativeStep(NamedTuple):
    """Run a native kernel by name, on the operands in order."""

    origin: NodeOrigin
    kernel: str
    operands: tuple[Operand, ...]
    parameters: tuple[int, ...]

    @property
    def writes(self) -> tuple[Operand, ...]:
        """What it fills: by convention the last of its operands."""
        return self.operands[-1:]

    @property
    def implementation(self) -> str:
        """What profiles show."""
        return f"native:{self.kernel}"


class NumpyStep(NamedTuple):
    """Call a function with arrays over the operands: the reads, then the writes to fill."""

    origin: NodeOrigin
    function: Callable[..., None]
    operands: tuple[Operand, ...]
    knows_lengths: bool = True
    """False for a function that goes by nothing but these arrays: it is right for any lengths."""
    node: Node | None = None
    """What the function computes."""
    places: Places | None = None
    """Where it notes what it writes, of a step that writes into a state."""

    @property
    def writes(self) -> tuple[Operand, ...]:
        """What it fills: the last of its operands, and maybe some before."""
        return self.operands[-1:]

    @property
    def implementation(self) -> str:
        """What profiles show."""
        return "numpy"


Step = PrimitiveStep | NativeStep | NumpyStep


def place_steps(steps: Iterable[Step]) -> tuple[dict[Buffer, int], int]:
    """Return the offset in the arena of each buffer that these steps use there, and its bytes."""
    return place_spans(spans_of(step_buffers(steps)))


def step_buffers(steps: Iterable[Step]) -> Iterator[list[Buffer]]:
    """List the buffers that each step reads and writes."""
    for step in steps:
        yield [operand.buffer for operand in step.operands]
