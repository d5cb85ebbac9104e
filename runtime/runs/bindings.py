"""What one run reads and writes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ...errors import TensorError
from ..graph import shape_text
from ..tensors.kept_array import KeptArray
from ..tensors.tensor import Tensor
from ..tracing.copied_bytes import CopiedBytes, StageCopies
from ..tracing.recorder import RunMark, SpanRecorder
from .admission import Ticket
from .run_profile import NodeProfile, RunProfile

__all__ = [
    "NO_ANSWER",
    "NO_BINDINGS",
    "NO_TENSORS",
    "WARMING",
    "Bindings",
    "Deferred",
    "NodeProfile",
    "Results",
    "RunProfile",
    "StatesOfRun",
]

NO_TENSORS: Mapping[str, Any] = MappingProxyType({})
Results = Any
"""What callers get: the outputs by name, or what a postprocess function has made of them."""
NO_ANSWER: Results = object()
"""Nothing else is answered than the results."""

WARMING = -1
"""``Bindings.arrived_ns`` of a run that no caller asked for; in no statistics and no trace."""


class Deferred:
    """A function of one run's results that is called by the first thread that takes them."""

    __slots__ = ("function", "lock", "thread_id")

    def __init__(self, function: Callable[[dict[str, Any]], Results]) -> None:
        self.function = function
        self.lock = threading.Lock()
        """Held during the call."""
        self.thread_id = 0
        """Of the thread that calls it now, which would wait for itself if it took the results."""


class StatesOfRun(Protocol):
    """What a run of a request reads of the last one and leaves for the next."""

    def check_is_current(self) -> None:
        """Raise RequestBusyError if another run of the request has ended since it was bound."""

    def bind(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the states to a run's inputs; raises TensorError."""

    def take(self, results: dict[str, Any]) -> TensorError | None:
        """Take the new states out of a run's results; return what is wrong with them."""

    def part(self) -> None:
        """Have later runs share no memory with this one, which goes on unnoticed on its device."""

    def settle(self, *, has_succeeded: bool) -> None:
        """Keep what was made, or forget it; once, when nothing works for the run any more."""


@dataclass(slots=True)
class Bindings:
    """The tensors of one run, by name: inputs to read, memory to write, results as they come.

    ``inputs`` hold the caller's own arrays, in any memory order, in use until the run's last token.
    ``bound`` is memory of the caller for some of the outputs, arrays or DeviceArrays. ``results``
    are filled by the last stage through ``deliver``.
    """

    inputs: Mapping[str, Any]
    ticket: Ticket
    run_id: int = 0
    bound: Mapping[str, Any] = field(default_factory=lambda: NO_TENSORS)
    results: dict[str, Any] = field(default_factory=dict)
    profile: RunProfile | None = None
    """Where nodes note their times and stages what they copy; None unless PERF_COUNT is on."""
    arrived_ns: int = 0
    """When the run was asked for; WARMING: by no caller."""
    awaited: Any = None
    """What a stage that is called again has waited for: a plan that was not built yet."""

    answer: Results = NO_ANSWER
    """What the caller gets in place of the results: what a postprocess function has returned.

    A ``Deferred`` is still to be called.
    """
    states: StatesOfRun | None = None
    """Of a caller's run on a network with state."""
    has_own_states: bool = False
    """No run beside this one and those inside it uses the memory that its states lie in."""
    shared: Any = None
    """What knows the callers that this run is of, where there are several."""

    def mark(self) -> RunMark:
        """Make what the run's spans have in common."""
        return self.run_id, self.ticket[1], self.arrived_ns

    def note_copied(self, recorder: SpanRecorder, stage: str, kind: str, size_bytes: int) -> None:
        """Note what a stage of the run has copied, by kind: one of ``copied_bytes.KINDS``."""
        self.note_copies(recorder, [(stage, {kind: size_bytes}, 0)])

    def note_copies(self, recorder: SpanRecorder, copies: Sequence[StageCopies]) -> None:
        """Note what the stages of the run have copied: their names, bytes by kind, and when.

        ``recorder`` is that of the network whose stages they are. Nothing is noted of a warm-up, or
        of no bytes.
        """
        if self.arrived_ns < 0:
            return
        noted: list[tuple[CopiedBytes, int]] = []
        for stage, counts, started_ns in copies:
            for kind, size_bytes in counts.items():
                if size_bytes:
                    noted.append((CopiedBytes(stage, kind, size_bytes), started_ns))
        recorder.note_copies(self.ticket[1], noted)
        if self.profile is not None:
            self.profile.copies += [copied for copied, _ in noted]

    def later_download(self, recorder: SpanRecorder, stage: str) -> Callable[[int], None]:
        """Return what notes how many bytes were downloaded of an output that a stage has left.

        It keeps neither the run nor its network, which may be gone by then.
        """
        found, mark, profile = weakref.ref(recorder), self.mark(), self.profile

        def note(size_bytes: int) -> None:
            copied = CopiedBytes(stage, "later_download", size_bytes)
            recorder = found()
            if recorder is not None:
                recorder.note_copies(mark[1], [(copied, 0)])
            if profile is not None:
                profile.copies.append(copied)

        return note

    def deliver(self, name: str, value: Any) -> int:
        """Hand over an output: copied into bound memory if there is some, else as it is.

        The value must be the run's own: no later run may write into it. Returns how many bytes were
        copied. Raises TensorError if the bound memory does not fit.
        """
        memory = self.bound.get(name)
        if memory is None:
            self.results[name] = value
            return 0
        if not isinstance(value, np.ndarray) or memory.shape != value.shape:
            made = (
                shape_text(value.shape) if isinstance(value, np.ndarray) else type(value).__name__
            )
            raise TensorError(
                f"output {name!r} is {made} in this run, and the tensor bound to it is "
                f"{shape_text(memory.shape)}; bind one that fits, or none",
                tensor=name,
                shape=memory.shape,
                wanted_shape=getattr(value, "shape", None),
            )
        np.copyto(memory, value, casting="no" if memory.dtype != object else "unsafe")
        self.results[name] = memory
        return int(value.nbytes)

    def hand_out(self, names: Collection[str]) -> None:
        """Have a Tensor for each of these outputs that is not the caller's own memory."""
        for name in names:
            value = self.results.get(name)
            if isinstance(value, np.ndarray | list | KeptArray) and name not in self.bound:
                self.results[name] = Tensor(value)


NO_BINDINGS = Bindings(NO_TENSORS, (0, 0))
"""Those of a slot that no run has."""
