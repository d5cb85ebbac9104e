"""StagedNetwork: a network with a user's functions before and behind it, each a stage of its own.

Theory of operation. A run prepares its inputs on one executor, goes through the network as a run
inside of it, and has its outputs handled on another executor, so that the three overlap between
runs. It takes one of the network's own slots only when its inputs are there. The slots of this
network bound what waits in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import NotSupportedError
from ...executors import NOW, Lane, Ready, StreamsConfig, StreamsExecutor, Then
from ...executors.cpu_allowance import allowed_cpus
from ..graph import Graph
from ..properties.properties import (
    AUTO,
    POSTPROCESS_STREAMS,
    PREPROCESS_STREAMS,
    Metric,
    Property,
)
from ..runs.bindings import Bindings
from ..runs.graph_run import GraphRun, StageGraph
from ..runs.slot import Slot
from ..runs.stage import Stage, Stop
from ..tracing.recorder import SpanRecorder, StageTally
from ..tracing.statistics import NetworkStatistics, PlanStatistics
from ..tracing.timeline import Trace
from .executable_network import ExecutableNetwork, ExecutorOwner
from .sub_request import SubRequestExecutor
from .user_functions import UserFunctions

__all__ = ["StagedNetwork", "with_functions"]


def with_functions(
    compiled: ExecutableNetwork, functions: UserFunctions, core: ExecutorOwner
) -> ExecutableNetwork:
    """Put a user's functions around a network: as stages, or on the threads of its callers.

    Returns the network itself where no function has a thread (PREPROCESS_STREAMS and
    POSTPROCESS_STREAMS 0), so that short runs may stay inline.
    """
    staged = replace(
        functions,
        preprocess=functions.preprocess if _stream_count(compiled, PREPROCESS_STREAMS) else None,
        postprocess=functions.postprocess if _stream_count(compiled, POSTPROCESS_STREAMS) else None,
    )
    network = compiled
    if staged.preprocess is not None or staged.postprocess is not None:
        network = StagedNetwork(compiled, staged, core)
    if functions.preprocess is not None:
        network.free_inputs = functions.free_inputs
        if staged.preprocess is None:
            network.check_inputs = functions.prepare_here
    if functions.postprocess is not None and staged.postprocess is None:
        network.inline_postprocess = functions.handle
    return network


def _stream_count(network: ExecutableNetwork, streams: Property[int]) -> int:
    wanted = network.config.value_or_default(streams)
    return allowed_cpus().count if wanted == AUTO else wanted


class StagedNetwork(ExecutableNetwork):
    """A network whose callers give what ``preprocess`` takes, and get what ``postprocess`` returns.

    It owns ``compiled``, the network inside, and closes it. Facts, plans and graphs are that one's.
    """

    def __init__(
        self, compiled: ExecutableNetwork, functions: UserFunctions, core: ExecutorOwner
    ) -> None:
        super().__init__(
            name=compiled.name,
            device=compiled.device,
            inputs=compiled.inputs,
            outputs=compiled.outputs,
            config=compiled.config,
            core=core,
            adopt_array=compiled.adopt_array,
        )
        self.compiled, self.functions = compiled, functions
        compiled.is_part = True
        self.removed_nodes = compiled.removed_nodes
        self.states = compiled.states
        self.model_inputs, self.model_outputs = compiled.model_inputs, compiled.model_outputs
        self.has_perf_count = compiled.has_perf_count
        if functions.preprocess is not None:
            self.check_inputs = functions.take
        self.admission.recorder.has_open_batch = False  # what callers give need not be arrays
        self._leases: list[StreamsExecutor] = []
        before: StreamsExecutor | None = None
        behind: StreamsExecutor | None = None
        try:
            if functions.preprocess is not None:
                before = self._acquire("preprocess", PREPROCESS_STREAMS)
            if functions.postprocess is not None:
                behind = self._acquire("postprocess", POSTPROCESS_STREAMS)
            stages = 1 + len(self._leases)
            self._graph = StageGraph([[index - 1] if index else [] for index in range(stages)])
            count = self._wanted_slot_count()
            self._provide_slots([_StagedSlot(self, before, behind) for _ in range(count)])
        except BaseException:
            self._abandon()
            raise

    def _acquire(self, name: str, streams: Property[int]) -> StreamsExecutor:
        config = StreamsConfig(name, _stream_count(self.compiled, streams), 1)
        executor = self._core.executors.acquire(config)
        self._leases.append(executor)
        return executor

    def _wanted_slot_count(self) -> int:
        """Count what keeps all threads and the device busy, and as much that is ready for it."""
        lanes = sum(executor.config.stream_count for executor in self._leases)
        count = lanes + 2 * self.compiled.optimal_request_count
        wanted = int(self.config["PERFORMANCE_HINT_NUM_REQUESTS"])
        return min(count, wanted) if wanted else count

    def start_run(self, bindings: Bindings, stop: Stop, after: Ready, then: Then) -> None:
        """Send a run of tensors to the network inside, without the user's functions."""
        self.compiled.start_run(bindings, stop, after, then)

    def _bind_states(self, bindings: Bindings) -> None:
        if self.functions.preprocess is None:
            super()._bind_states(bindings)

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

    def input_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return self.compiled.input_memory(shape, dtype)

    def get_config(self, key: str) -> Any:
        return self.compiled.get_config(key)

    def _metrics(self) -> Sequence[Metric]:
        return self.compiled._metrics()

    def trace(self) -> Trace:
        traces = [super().trace(), self.compiled.trace()]
        return Trace.merged(self.name, self.device, traces)

    def _stage_tallies(self) -> list[StageTally]:
        return super()._stage_tallies() + self.compiled._stage_tallies()

    def _plan_statistics(self) -> PlanStatistics:
        return self.compiled._plan_statistics()

    def _part_statistics(self) -> tuple[NetworkStatistics, ...]:
        return (self.compiled.statistics(),)

    def export(self, target: Any = None) -> bytes:
        raise NotSupportedError(
            f"network {self.name!r} has functions of Python around it, which no file can hold; "
            f"export a network that is loaded without preprocess and postprocess",
            **self.admission.where,
        )

    def _release_device(self) -> None:
        try:
            self.compiled.close()
        finally:
            for executor in self._leases:
                self._core.executors.release(executor)


class _StagedSlot(Slot):
    """One run through the functions and the network between them."""

    def __init__(
        self,
        network: StagedNetwork,
        before: StreamsExecutor | None,
        behind: StreamsExecutor | None,
    ) -> None:
        self._network = network
        inside = SubRequestExecutor(
            "network", network.compiled, lambda: self.bindings, lambda: self.stop
        )
        stages = [Stage(inside.name, inside, inside.bind)]
        if before is not None:
            stages.insert(0, Stage(before.name, before, self._prepare))
        if behind is not None:
            stages.append(Stage(behind.name, behind, self._handle_outputs))
        self.stages = tuple(stages)

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> GraphRun:
        graph, mark = self._network._graph, self.bindings.mark()
        run = GraphRun(self.stages, graph, stop, then, recorder, mark)
        run.start(after)
        return run

    def _prepare(self, _lane: Lane) -> Ready:
        bindings = self.bindings
        bindings.inputs = self._network.functions.prepare(bindings.inputs)
        if bindings.states is not None:
            bindings.inputs = bindings.states.bind(bindings.inputs)
        return NOW

    def _handle_outputs(self, _lane: Lane) -> Ready:
        bindings = self.bindings
        wrong = None if bindings.states is None else bindings.states.take(bindings.results)
        if wrong is not None:
            raise wrong
        bindings.answer = self._network.functions.handle(bindings.results)
        return NOW
