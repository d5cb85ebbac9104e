"""A compiled plan: which kernels run, on what, and where that lies in the arena of a slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...runtime.graph import Graph
from ...runtime.graph.stand_ins import release_constants
from ...runtime.lowering.node_operands import NodeOrigin
from .launching.kernel_source import KernelSource
from .operand import Buffer, Operand
from .queues.library_operation import LibraryOperation
from .queues.user_operation import UserOperation

__all__ = ["Growth", "Launch", "LaunchArgument", "Plan"]

LaunchArgument = Operand | int | float
"""An operand is passed as a pointer, int as a C ``int``, float as ``float``."""


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid of work-items; sizes have one to three numbers, a library's none."""

    origin: NodeOrigin
    source: KernelSource | LibraryOperation
    arguments: tuple[LaunchArgument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]

    @property
    def operands(self) -> list[Operand]:
        """All that it touches."""
        return [item for item in self.arguments if isinstance(item, Operand)]


@dataclass(frozen=True, eq=False)
class Growth:
    """One state in a plan: its places among inputs and outputs, and its shapes.

    ``given_room`` and ``room`` are the shapes of the memory before and after. ``from_dense`` and
    ``from_room`` move what was there; None where that is nothing.
    """

    input: int
    output: int
    given_room: tuple[int, ...]
    shape: tuple[int, ...]
    room: tuple[int, ...]
    from_dense: Launch | None
    from_room: Launch | None
    moved_bytes: int


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that does not change from run to run; any number of slots may be bound to it.

    ``inputs`` and ``outputs`` are in the order of the network's ports. Inputs are uploaded into the
    arena, and outputs stay there until they are downloaded. ``offsets`` places the arena's buffers.
    """

    graph: Graph
    launches: Sequence[Launch]
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    offsets: Mapping[Buffer, int]
    arena_bytes: int
    constants: Sequence[Buffer]
    growing: Sequence[Growth] = ()
    """States whose outputs lie in memory with room, and are no dense arrays."""

    @property
    def calls_users(self) -> bool:
        """True if functions of users are among its launches, which cannot be replayed."""
        return any(isinstance(launch.source, UserOperation) for launch in self.launches)

    @property
    def can_be_replayed(self) -> bool:
        """True if each run enqueues the same launches, on memory of the slot."""
        return not (self.calls_users or self.growing)

    def release_graph(self) -> None:
        """Free the large constants of the graph, which is there to be looked at."""
        release_constants(self.graph)

    def __repr__(self) -> str:
        return (
            f"<Plan of {self.graph.name!r}: {len(self.launches)} launches, arena of "
            f"{self.arena_bytes} bytes>"
        )
