"""StagedNetwork: a network with a user's functions before and behind it, each a stage of its own.

A run prepares its inputs on one executor, goes through the network as a run inside of it, and has
its outputs handled on another executor, so that the three overlap between runs. It takes one of the
network's own slots only when its inputs are there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import NotSupportedError
from ...executors import NOW, Lane, Ready, StreamsConfig, StreamsExecutor, Then
from ...executors.cpu_allowance import allowed_cpus
from ..blobs.writer import BlobWriter
from ..properties.properties import (
    AUTO,
    POSTPROCESS_STREAMS,
    PREPROCESS_STREAMS,
    Property,
)
from ..runs.bindings import Bindings
from ..runs.graph_run import GraphRun, StageGraph
from ..runs.slot import Slot
from ..runs.stage import Stage, Stop
from ..tensors.kept_array import KeptArray
from ..tracing.recorder import SpanRecorder
from .compiled_network import ExecutorOwner
from .executable_network import ExecutableNetwork
from .outer_network import OuterNetwork
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
            network.refuse_atomic()
    if functions.postprocess is not None and staged.postprocess is None:
        network.inline_postprocess = functions.handle
        network.refuse_atomic()
    return network


def _stream_count(network: ExecutableNetwork, streams: Property[int]) -> int:
    wanted = network.config.value_or_default(streams)
    return allowed_cpus().count if wanted == AUTO else wanted


class StagedNetwork(OuterNetwork):
    """A network whose callers give what ``preprocess`` takes, and get what ``postprocess`` returns.

    It owns ``compiled``, the network inside, and closes it. Facts, plans and graphs are that one's.
    """

    def __init__(
        self, compiled: ExecutableNetwork, functions: UserFunctions, core: ExecutorOwner
    ) -> None:
        super().__init__(compiled, core)
        self.functions = functions
        if functions.preprocess is not None:
            self.check_inputs = functions.take
        self.admission.arrivals.has_open_batch = False  # what callers give need not be arrays
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

    def _reads_in_place(self, name: str, kept: KeptArray) -> bool:
        return self.compiled._reads_in_place(name, kept)

    def start_run(self, bindings: Bindings, stop: Stop, after: Ready, then: Then) -> None:
        """Send a run of tensors to the network inside, without the user's functions."""
        self.compiled.start_run(bindings, stop, after, then)

    def _bind_states(self, bindings: Bindings) -> None:
        if self.functions.preprocess is None:
            super()._bind_states(bindings)

    def get_config(self, key: str) -> Any:
        return self.compiled.get_config(key)

    def _write_payload(self, blob: BlobWriter) -> None:
        raise NotSupportedError(
            f"network {self.name!r} has functions of Python around it, which no file can hold; "
            f"export a network that is loaded without preprocess and postprocess",
            **self.admission.where,
        )

    def _release_device(self) -> None:
        try:
            super()._release_device()
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
        bindings.hand_out(self._network.kept_outputs)
        bindings.answer = self._network.functions.handle(bindings.results)
        return NOW
