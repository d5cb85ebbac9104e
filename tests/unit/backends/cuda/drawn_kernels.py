"""The kernels that CUDA lowers drawn cases to, for every operator, precision and set of libraries.

The cases are those of the suite that compares devices with REFERENCE, ``property/test_operators``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given

from aioinfer.backends.cuda.kernels.registry import KERNELS
from aioinfer.backends.cuda.plugin import compile_rules
from aioinfer.runtime.accelerator.compiler import Compiler
from aioinfer.runtime.accelerator.kernel_source import KernelSource
from aioinfer.runtime.accelerator.opened_device import OpenedDevice
from aioinfer.runtime.accelerator.plugin import PRECISIONS
from aioinfer.runtime.accelerator.precision import Precision
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.passes import DeadCode, default_passes, run_passes
from aioinfer.runtime.passes.model_passes import model_passes
from property.operators.cases import FUSED, GENERATORS, Case
from property.test_operators import EXAMPLES, element_types, model_of, several_cases
from unit.runtime.accelerator.fake_driver import FACTS, FakeDriver

_NONE, _ALL = frozenset[str](), frozenset({"cudnn", "cublaslt", "cublas"})
WAYS = ((_NONE, "f32"), (_NONE, "bf16"), (_ALL, "f32"), (_ALL, "f16"))
"""Libraries and precisions: what a library computes needs no kernel, and what is fused differs."""
_GPU = replace(FACTS, memory_bytes=1 << 34, largest_buffer_bytes=1 << 33, work_group_size=1024)


def operators() -> list[tuple[str, str]]:
    """List CUDA's operators that cases are drawn of, as (domain, operator)."""
    return sorted(
        (domain, op_type)
        for domain, op_type in KERNELS.kernels
        if op_type in (FUSED if domain else GENERATORS)
    )


def draw_kernels(domain: str, op_type: str) -> dict[str, KernelSource]:
    """Draw cases of an operator, and give the kernels of their plans by name."""
    taken = element_types(domain, op_type, KERNELS.kernels[domain, op_type].dtypes)
    draw_case = (FUSED if domain else GENERATORS)[op_type]
    found: dict[str, KernelSource] = {}

    @EXAMPLES
    @given(cases=several_cases(op_type, draw_case, taken))
    def note(cases: list[Case]) -> None:
        for source in kernels_of(cases):
            found[source.name] = source

    note()
    return found


def kernels_of(cases: list[Case]) -> Iterator[KernelSource]:
    """Plan what CUDA takes of the cases, in all ways, and give the kernels."""
    refused = set(KERNELS.unsupported_nodes(model_to_plan(cases).graph))
    cases = [case for case in cases if not refused & {node.name for node in case.nodes}]
    for libraries, hint in WAYS if cases else ():
        yield from _planned(cases, libraries, PRECISIONS[hint])


def model_to_plan(cases: list[Case]) -> Model:
    return read_model(model_of(cases, is_dynamic=False))


def _planned(
    cases: list[Case], libraries: frozenset[str], precision: Precision
) -> Iterator[KernelSource]:
    model = model_to_plan(cases)
    run_passes(model, (*default_passes(), *model_passes(), DeadCode()), check=False)
    driver = FakeDriver(replace(_GPU, libraries=libraries))
    device = OpenedDevice("CUDA.0", driver.open(driver.facts[0]))
    try:
        compiler = Compiler(model, device, precision, compile_rules(libraries))
        inputs = {name: array for case in cases for name, array in case.inputs.items()}
        shapes = {name: array.shape for name, array in inputs.items()}
        contents = {name: inputs[name] for name in compiler.content_inputs}
        plan = compiler.compile(shapes, contents)
    finally:
        device.close()
    for launch in plan.launches:
        if isinstance(launch.source, KernelSource):
            yield launch.source
