"""Plans of small models for a GPU that is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aioinfer.backends.accelerator.compiler import Compiler
from aioinfer.backends.accelerator.plan import Plan
from aioinfer.backends.accelerator.precision import F32, Precision
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.accelerator.queues.opened_device import OpenedDevice
from aioinfer.backends.cuda.plugin import compile_rules
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.passes import DeadCode, default_passes, run_passes
from aioinfer.runtime.passes.model_passes import model_passes
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.comparing import Arrays

__all__ = ["CUDNN", "labels_of", "operations_of", "plan_of"]

CUDNN = frozenset({"cudnn"})
_ROOM_BYTES = 1 << 34


def plan_of(
    model: Any,
    inputs: Arrays,
    libraries: frozenset[str] = CUDNN,
    precision: Precision = F32,
    work_group_size: int = FACTS.work_group_size,
) -> Plan:
    """Compile a ModelProto for the shapes of inputs, and for what they hold where that matters."""
    room = replace(FACTS, memory_bytes=_ROOM_BYTES, largest_buffer_bytes=_ROOM_BYTES)
    facts = replace(room, work_group_size=work_group_size, moves_words=True)
    driver = FakeDriver(replace(facts, libraries=libraries))
    device = OpenedDevice("CUDA.0", driver.open(driver.facts[0]))
    read = read_model(model)
    run_passes(read, (*default_passes(), *model_passes(), DeadCode()), check=False)
    try:
        compiler = Compiler(read, device, precision, compile_rules(libraries))
        shapes = {name: array.shape for name, array in inputs.items()}
        return compiler.compile(shapes, {name: inputs[name] for name in compiler.shape_tensors})
    finally:
        device.close()


def operations_of(plan: Plan) -> list[LibraryOperation]:
    """List the library's operations of a plan."""
    sources = [launch.source for launch in plan.launches]
    return [source for source in sources if isinstance(source, LibraryOperation)]


def labels_of(plan: Plan) -> list[str]:
    """List what is launched, in a word each; operations of libraries in capitals."""
    return [
        source.label.upper() if isinstance(source, LibraryOperation) else source.label
        for source in (launch.source for launch in plan.launches)
    ]
