"""OuterNetwork: what a network says of itself that is another one with something around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..graph import Graph
from ..properties.properties import Configuration, Metric
from ..runs.stage import Stop
from ..tracing.copied_bytes import CopyCounts, merged_counts
from ..tracing.recorder import StageTally
from ..tracing.statistics import NetworkStatistics, PlanStatistics
from ..tracing.timeline import Trace
from .compiled_network import ExecutorOwner
from .executable_network import ExecutableNetwork

__all__ = ["OuterNetwork"]


class OuterNetwork(ExecutableNetwork):
    """A network around ``compiled``, which it owns and closes: facts, plans and graphs are that's.

    A subclass provides the slots, through which runs come to the network inside.
    """

    def __init__(
        self,
        compiled: ExecutableNetwork,
        core: ExecutorOwner,
        *,
        device: str | None = None,
        config: Configuration | None = None,
    ) -> None:
        super().__init__(
            name=compiled.name,
            device=compiled.device if device is None else device,
            inputs=compiled.inputs,
            outputs=compiled.outputs,
            config=compiled.config if config is None else config,
            core=core,
            adopt_array=compiled.adopt_array,
        )
        self.compiled = compiled
        compiled.is_part = True
        self.removed_nodes = compiled.removed_nodes
        self.states = compiled.states
        self.model_inputs, self.model_outputs = compiled.model_inputs, compiled.model_outputs
        self.has_perf_count = compiled.has_perf_count

    def local_keys(self) -> frozenset[str]:
        return super().local_keys() | self.compiled.local_keys()

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        self.compiled.run_everywhere(inputs, stop)

    def begin_ahead(self, count: int) -> None:
        self.compiled.begin_ahead(count)

    def end_ahead(self) -> list[str]:
        return self.compiled.end_ahead()

    @property
    def execution_devices(self) -> tuple[str, ...]:
        return self.compiled.execution_devices

    def runtime_graph(self) -> Graph:
        return self.compiled.runtime_graph()

    def explain(self) -> str:
        return self.compiled.explain()

    @property
    def lends_memory(self) -> bool:
        return self.compiled.lends_memory

    def input_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return self.compiled.input_memory(shape, dtype)

    def _metrics(self) -> Sequence[Metric]:
        return self.compiled._metrics()

    def trace(self) -> Trace:
        traces = [super().trace(), self.compiled.trace()]
        return Trace.merged(self.name, self.device, traces)

    def _stage_tallies(self) -> list[StageTally]:
        return super()._stage_tallies() + self.compiled._stage_tallies()

    def _copied_bytes(self) -> CopyCounts:
        return merged_counts([self.compiled._copied_bytes(), super()._copied_bytes()])

    def _plan_statistics(self) -> PlanStatistics:
        return self.compiled._plan_statistics()

    def _part_statistics(self) -> tuple[NetworkStatistics, ...]:
        return (self.compiled.statistics(),)

    def _release_device(self) -> None:
        self.compiled.close()
