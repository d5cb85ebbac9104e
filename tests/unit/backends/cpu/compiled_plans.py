"""Plans without a network around them: compiled, bound to a lane and run by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aioinfer import Core
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.passes import plan_passes
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.programs.lane_programs import LanePrograms
from aioinfer.backends.cpu.programs.run_arrays import as_buffer
from aioinfer.executors import Lane
from aioinfer.runtime.graph import DType
from aioinfer.runtime.passes import Pass, default_passes, run_passes
from unit.backends.cpu.comparing import skip_without_bfloat16

Arrays = Mapping[str, np.ndarray]


def compiler_of(
    core: Core,
    proto: Any,
    *,
    threads: int = 1,
    float_dtype: DType = DType.FLOAT32,
    passes: Sequence[Pass] | None = None,
) -> Compiler:
    """Make the compiler of a model, by default with the passes that the device runs.

    Skips the test where the processor cannot compute so.
    """
    if float_dtype is DType.BFLOAT16:
        skip_without_bfloat16()
    model = core.read_model(proto).copy()
    run_passes(model, default_passes())
    return Compiler(
        model,
        open_engine(),
        device="CPU",
        thread_count=threads,
        float_dtype=float_dtype,
        passes=plan_passes() if passes is None else passes,
    )


def plan_of(core: Core, proto: Any, inputs: Arrays, **options: Any) -> Plan:
    """Compile a model for these inputs."""
    compiler = compiler_of(core, proto, **options)
    return compiler.compile({name: array.shape for name, array in inputs.items()}, {})


def constants_of(plan: Plan, least_bytes: int) -> list[np.ndarray | None]:
    """List the memory of its constants, packed or, as other processors want them, as they are."""
    return [
        buffer.array
        for buffer in plan.table.buffers
        if buffer.kind == "constant" and buffer.size_bytes >= least_bytes
    ]


class BoundPlan:
    """A plan on a lane of its own, run on the calling thread."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.lane = plan, Lane("test", 0, plan.thread_count)
        self.programs = LanePrograms(step_runner(plan.engine))

    def run(self, inputs: Arrays, times: Any = None) -> list[np.ndarray]:
        """Run it and return its outputs, in order."""
        program = self.programs.program(self.plan, self.lane)
        outputs = [np.empty(item.shape, item.dtype.numpy) for item in self.plan.outputs]
        given = [inputs[value.name] for value in self.plan.graph.inputs]
        program.run(tuple(map(as_buffer, (*given, *outputs))), times=times)
        return outputs

    def poison(self, byte: int) -> None:
        """Fill the arena, so that what a run leaves or expects there shows; 255 is NaN."""
        self.programs.program(self.plan, self.lane).arena[...] = byte
