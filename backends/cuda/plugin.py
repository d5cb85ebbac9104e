"""The CUDA plugin: every GPU that NVIDIA's driver of this machine offers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from ...errors import PropertyError
from ...executors import allowed_cpus
from ...executors.late_imports import late_imports
from ...runtime.devices.plugin import CoreHandle
from ...runtime.lowering.kernel_registry import KernelRegistry
from ...runtime.properties.properties import (
    DEVICE_ID,
    PERF_COUNT,
    PERFORMANCE_HINT,
    Configuration,
    Metric,
    Property,
)
from ..accelerator.compiler import CompileRules
from ..accelerator.passes import plan_passes
from ..accelerator.plan_builder import PlanBuilder
from ..accelerator.plugin import AcceleratorPlugin
from ..accelerator.queues.driver import DeviceFacts, Driver
from .kernels.registry import KERNELS
from .passes import cuda_plan_passes
from .properties import (
    CUDA_DISABLED_PASSES,
    CUDA_GRAPHS,
    CUDA_PROPERTIES,
    CUDA_SPIN_WAIT,
    may_spin,
)

__all__ = ["CudaPlugin", "compile_rules"]


_LATENCY_STREAMS, _THROUGHPUT_STREAMS = 2, 4
_AMPERE = (8, 0)
"""The first compute capability with tf32 and bfloat16."""


def compile_rules(libraries: frozenset[str], disabled: Collection[str] = ()) -> CompileRules:
    """Return what is done with a model on a GPU where these libraries work.

    ``disabled`` are names of passes to leave out.
    """
    shared = (item for item in plan_passes() if item.name not in disabled)
    return CompileRules(KERNELS, (*shared, *cuda_plan_passes(libraries, disabled)))


class CudaPlugin(AcceleratorPlugin):
    """Compiles a model for each shape into launches that a GPU replays as one CUDA graph.

    Without a GPU, its driver or CuPy there are no devices, and queries are answered all the same.
    ``driver`` is CuPy's unless a test gives one.
    """

    properties: ClassVar[tuple[Property[Any], ...]] = CUDA_PROPERTIES
    kernels: ClassVar[KernelRegistry[PlanBuilder]] = KERNELS
    plans_without_device: ClassVar[bool] = True
    most_streams: ClassVar[int] = 16
    takes_extensions: ClassVar[bool] = True

    def __init__(self, core: CoreHandle, name: str, driver: Driver | None = None) -> None:
        super().__init__(core, name, _cupy_driver if driver is None else lambda: driver)

    def best_stream_count(self, config: Configuration) -> int:
        """Use enough queues for small kernels of several runs to share the device."""
        return _LATENCY_STREAMS if config[PERFORMANCE_HINT] == "LATENCY" else _THROUGHPUT_STREAMS

    def rules(self, facts: DeviceFacts, config: Configuration) -> CompileRules:
        return compile_rules(facts.libraries, self.disabled_passes(config))

    def disabled_passes(self, config: Configuration) -> Collection[str]:
        names: Collection[str] = config[CUDA_DISABLED_PASSES]
        return names

    def captures(self, config: Configuration) -> bool:
        """Capture, unless runs are to be enqueued launch by launch anyway, for their times."""
        return bool(config[CUDA_GRAPHS]) and not config[PERF_COUNT]

    def spins(self, config: Configuration) -> bool:
        hint = str(config[PERFORMANCE_HINT])
        return may_spin(config[CUDA_SPIN_WAIT], hint, allowed_cpus().whole_count)

    def precision_refusal(self, hint: str, facts: DeviceFacts) -> str | None:
        capability = facts.compute_capability
        if hint not in ("tf32", "bf16") or capability is None or capability >= _AMPERE:
            return None
        needed, found = (".".join(map(str, pair)) for pair in (_AMPERE, capability))
        return f"it needs compute capability {needed}, and {facts.name} has {found}"

    def check_values(self, config: Configuration) -> None:
        super().check_values(config)
        can_capture = not self.facts or self.facts_of(config[DEVICE_ID]).can_capture
        if config[CUDA_GRAPHS] and CUDA_GRAPHS.key in config.given and not can_capture:
            raise PropertyError(
                f"{config.device} cannot capture CUDA graphs; leave {CUDA_GRAPHS.key} at its "
                "default, or update its driver",
                CUDA_GRAPHS.key,
                self.name,
                value=config[CUDA_GRAPHS],
            )

    def metrics(self) -> Sequence[Metric]:
        return (
            *super().metrics(),
            self.fact(
                "CUDA_VERSION",
                lambda facts: facts.platform_version,
                "The version of CUDA that is used, and the device's compute capability.",
            ),
            self.fact(
                "CUDA_LIBRARIES",
                lambda facts: sorted(facts.libraries),
                "Libraries whose operations are called; what none has, kernels compute.",
            ),
        )


def _cupy_driver() -> Driver:
    with late_imports:
        from .cupy_driver import CupyDriver

    return CupyDriver()
