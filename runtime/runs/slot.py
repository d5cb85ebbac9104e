"""Slot: where one run lives on its device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...executors import Lane, Ready, Then
from ..tracing.recorder import SpanRecorder
from .atomic_run import AtomicTerms, Attempt
from .bindings import NO_BINDINGS, Bindings
from .stage import NO_STOP, Stage, Stop

__all__ = ["AlikeRuns", "OwnRun", "Slot"]


class AlikeRuns(Protocol):
    """What a backend has kept of a run, for those that are like it; for one lane."""

    def attempts(self, terms: AtomicTerms) -> Attempt:
        """Return the call that makes a run like it, on these terms and those of the backend."""


class OwnRun(Protocol):
    """What a slot starts that goes through its stages in a way of its own, as a GraphRun does."""

    @property
    def place(self) -> str:
        """How far it is, for messages."""

    @property
    def stage(self) -> str:
        """The names of the stages that it is in, for messages."""


class Slot:
    """The device memory one run occupies, first stage to last token, and its stages.

    The stage functions read ``bindings`` and ``stop``, which are those of the run that has it.
    """

    bindings: Bindings = NO_BINDINGS
    stop: Stop = NO_STOP
    lender: Any = None
    """The admission that it belongs to while a network around that one has it; written by that."""
    stages: Sequence[Stage] = ()
    may_run_inline = False
    """True says that the stages compute with one thread, block on nothing and call no user code, so
    that a run of a few microseconds may stay on its caller's thread, event loops included; that
    their executors lend lanes; and that a run whose stages have not come to their end may start
    again from the first. Where that depends on the run's plan, a stage writes it."""

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> OwnRun | None:
        """(optional) Start and return what goes through the stages; None: the run does, in line.

        ``then`` comes exactly once.
        """
        return None

    def alike_runs(self, lane: Lane) -> AlikeRuns | None:
        """(optional) Return what makes runs like the one that has just been computed here.

        By one native call each, on that lane; the run still has the slot. None: they need more.
        """
        return None

    def release(self) -> None:
        """(optional) Drop what belonged to the run that has ended; its bindings are still there."""
