"""The stage before all others of a run whose inputs lie in the memory of another device."""

from __future__ import annotations

from time import perf_counter_ns

from ...executors import NOW, Lane, Ready, TaskExecutor
from ..tensors.late_inputs import LateInputs
from ..tracing.recorder import SpanRecorder
from .bindings import Bindings
from .stage import Stage, Stop

__all__ = ["download_stage"]


def download_stage(
    executor: TaskExecutor, bindings: Bindings, stop: Stop, recorder: SpanRecorder
) -> Stage:
    """Make the stage that replaces the late inputs of a run by copies in the host's memory.

    Its function blocks, and looks at the Stop before each copy; it records its own span, queued
    from now on.
    """
    queued_ns = perf_counter_ns()

    def download(lane: Lane) -> Ready:
        started_ns = perf_counter_ns()
        stop.raise_if_set()
        try:
            inputs = bindings.inputs
            assert isinstance(inputs, LateInputs)
            bindings.inputs = inputs.downloaded(stop.raise_if_set)
        finally:
            recorder.record(bindings.mark(), stage, lane, queued_ns, started_ns, perf_counter_ns())
        return NOW

    stage = Stage("download inputs", executor, download)
    return stage
