"""The kernels that CUDA lowers drawn cases to, for every operator, precision and set of libraries.

The cases are those of the suite that compares devices with REFERENCE, ``property/test_operators``.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.plugin import PRECISIONS
from aioinfer.backends.cuda.kernels.registry import KERNELS
from aioinfer.runtime.onnx_reader import read_model
from property.operators.cases import FUSED, GENERATORS, Case
from property.test_operators import EXAMPLES, element_types, model_of, several_cases
from unit.backends.cuda.kernels.plans import plan_of

_NONE, _ALL = frozenset[str](), frozenset({"cudnn", "cublaslt", "cublas"})
WAYS = ((_NONE, "f32"), (_NONE, "bf16"), (_ALL, "f32"), (_ALL, "f16"))
"""Libraries and precisions: what a library computes needs no kernel, and what is fused differs."""
_MOST_ITEMS = 1024
"""Of one group, on NVIDIA's GPUs."""


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
    drawn = read_model(model_of(cases, is_dynamic=False))
    refused = set(KERNELS.unsupported_nodes(drawn.graph))
    cases = [case for case in cases if not refused & {node.name for node in case.nodes}]
    inputs = {name: array for case in cases for name, array in case.inputs.items()}
    for libraries, hint in WAYS if cases else ():
        model = model_of(cases, is_dynamic=False)
        plan = plan_of(model, inputs, libraries, PRECISIONS[hint], _MOST_ITEMS)
        for launch in plan.launches:
            if isinstance(launch.source, KernelSource):
                yield launch.source
