"""Runs through stages of a test, without a network around them."""

from __future__ import annotations

from collections.abc import Sequence

from aioinfer.errors import ClosedError
from aioinfer.executors import NOW, Then
from aioinfer.runtime.runs.bindings import Bindings
from aioinfer.runtime.runs.run import Run
from aioinfer.runtime.runs.run_admission import RunAdmission
from aioinfer.runtime.runs.slot import Slot
from aioinfer.runtime.runs.stage import Stage, Stop
from aioinfer.runtime.tracing.recorder import SpanRecorder

__all__ = ["start_line"]


def start_line(
    stages: Sequence[Stage], stop: Stop, then: Then, recorder: SpanRecorder, number: int = 7
) -> None:
    """Start a run through the stages in a slot of its own; spans name it by the number."""
    slot, admission = Slot(), RunAdmission("lines", "MOCK", lambda: ClosedError("closed"))
    slot.stages, admission.recorder = stages, recorder
    admission.add_slots([slot])
    Run(admission, Bindings({}, (0, number), number), stop, NOW, then).start()
