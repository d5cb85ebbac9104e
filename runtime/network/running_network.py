"""What requests and streams of results ask of the network that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...executors import Clock, TaskExecutor
from ..runs.atomic_route import AtomicRoute
from ..runs.bindings import Bindings
from ..runs.deadline import Deadline
from ..runs.inline_route import InlineRoute
from ..runs.run import Run, RunOwner
from ..tensors.device_array import AdoptArray
from ..tensors.tensor import Port
from .states.kept_states import NetworkStates

if TYPE_CHECKING:
    from .user_functions import Postprocess

__all__ = ["RunningNetwork"]


class RunningNetwork(Protocol):
    """An ExecutableNetwork, as far as what stands in front of it is concerned."""

    name: str
    device: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: NetworkStates | None
    clock: Clock
    default_deadline_s: float | None
    has_perf_count: bool
    inline_route: InlineRoute | None
    atomic_route: AtomicRoute | None
    adopt_array: AdoptArray | None
    free_inputs: frozenset[str]
    inline_postprocess: Postprocess | None

    @property
    def is_full(self) -> bool:
        """True if a request that starts now would be refused."""

    @property
    def callback_executor(self) -> TaskExecutor:
        """Where callbacks of requests run."""

    def make_run(
        self,
        inputs: Any,
        deadline: Deadline | None = None,
        priority: int = 0,
        request: RunOwner | None = None,
    ) -> Run:
        """Check inputs, and make a run of them that is not started yet."""

    def input_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Make memory, all zeros, for a caller to write an input to."""

    def place_of(self, bindings: Bindings) -> str:
        """Return where a run is, for ``repr``."""

    def refuse_after_fork(self) -> None:
        """Raise ClosedError in a forked child."""

    def refuse_if_closed(self) -> None:
        """Raise ClosedError once it is closed, and in a forked child."""
