"""A model over several devices: one network for each subgraph, and runs that link them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ...errors import NotSupportedError, UnsupportedOpError
from ...executors import (
    NOW,
    HostReady,
    Lane,
    Ready,
    StreamsConfig,
    StreamsExecutor,
    Then,
    shortage_as_error,
    tell_owner,
)
from ...runtime.blobs.writer import BlobWriter
from ...runtime.devices.plugin import CoreHandle
from ...runtime.devices.virtual_plugin import DEVICE_PROPERTIES
from ...runtime.graph import Graph, Model, copy_graph
from ...runtime.graph.stand_ins import release_constants
from ...runtime.network.executable_network import ExecutableNetwork, Slot
from ...runtime.properties.properties import Configuration, Metric
from ...runtime.runs.graph_run import GraphRun, StageGraph
from ...runtime.runs.stage import Stage, Stop
from ...runtime.tensors.kept_array import KeptArray
from ...runtime.tensors.tensor import Port, ports_of
from ...runtime.tracing.copied_bytes import CopyCounts, merged_counts
from ...runtime.tracing.recorder import SpanRecorder, StageTally
from ...runtime.tracing.statistics import NetworkStatistics, PlanStatistics
from ...runtime.tracing.timeline import Trace
from .crossing import Crossing
from .diagrams.diagram import affinity_svg
from .diagrams.dot import subgraphs_dot
from .division_record import part_name, write_division
from .explain import explain_partition
from .linked_run import LinkedRun, SubNetwork
from .partition import Partition
from .subgraphs.cutting import CutModel, cut_model
from .subgraphs.selection import Subgraph

__all__ = ["HeteroNetwork"]


class HeteroNetwork(ExecutableNetwork):
    """A model compiled for several devices; ``partition`` says which node runs where and why.

    It owns the networks of its subgraphs and closes them. Each run goes through them as a graph:
    what does not depend on each other runs side by side, and runs follow each other through the
    devices. A traced span carries the id of the outer request.
    """

    def __init__(
        self,
        original: Model,
        model: Model,
        cut: CutModel,
        networks: Sequence[ExecutableNetwork],
        partition: Partition,
        config: Configuration,
        core: CoreHandle,
    ) -> None:
        super().__init__(
            name=original.name,
            device=f"{config.device}:{','.join(partition.devices)}",
            inputs=ports_of(original.inputs),
            outputs=ports_of(original.outputs),
            config=config,
            core=core,
        )
        self.partition, self._original = partition, original
        self._port_types = [value.type for value in (*original.inputs, *original.outputs)]
        self.reason = ""
        self.removed_nodes = partition.removed_nodes
        self._whole, self._graph, self._cut = model, model.graph, cut
        self._subnetworks = _subnetworks(cut, networks, self.inputs)
        self._networks = tuple(networks)
        for network in networks:
            network.is_part = True
        self.has_perf_count = any(network.has_perf_count for network in networks)
        needs = cut.needs()
        # An output that no node makes is copied, and a large copy must not run just anywhere.
        self._copies: StreamsExecutor | None = None
        if None in cut.outputs:
            self._copies = core.executors.acquire(StreamsConfig("HETERO.copy"))
            needs.append([])
        self._stage_graph = StageGraph(needs)
        self._provide_slots([_HeteroSlot(self) for _ in range(self._wanted_slot_count())])

    def _reads_in_place(self, name: str, kept: KeptArray) -> bool:
        """Return whether all subgraphs that take an input are where it has been kept."""
        readers = [item.network for item in self._subnetworks if name in item.outer_inputs]
        return (
            bool(readers)
            and name not in self._cut.passed_inputs.values()
            and all(_adopts(network, name, kept) for network in readers)
        )

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        for network in self._networks:
            network.run_kept_everywhere(stop)

    def begin_ahead(self, count: int) -> None:
        for network in self._networks:
            network.begin_ahead(count)

    def end_ahead(self) -> list[str]:
        return [lost for network in self._networks for lost in network.end_ahead()]

    def _wanted_slot_count(self) -> int:
        """Count what keeps every device busy; the subgraphs of one device share its executors."""
        by_device: dict[tuple[str, ...], int] = {}
        for network in self._networks:
            key = network.execution_devices
            by_device[key] = max(by_device.get(key, 0), network.optimal_request_count)
        count = sum(by_device.values())
        wanted = int(self.config["PERFORMANCE_HINT_NUM_REQUESTS"])
        return max(1, min(count, wanted) if wanted else count)

    def local_keys(self) -> frozenset[str]:
        return super().local_keys().union(*(network.local_keys() for network in self.networks))

    @property
    def networks(self) -> tuple[ExecutableNetwork, ...]:
        """The networks of the subgraphs, in order of execution; they are this network's own."""
        return self._networks

    @property
    def execution_devices(self) -> tuple[str, ...]:
        devices = [name for network in self._networks for name in network.execution_devices]
        return tuple(dict.fromkeys(devices))

    def runtime_graph(self) -> Graph:
        """Return a copy of the whole graph; metadata says device (affinity) and subgraph.

        Names of nodes that passes have removed are in ``partition.removed_nodes``.
        """
        graph = copy_graph(self._graph)
        owners = {
            node.name: subgraph for subgraph in self.partition.subgraphs for node in subgraph.nodes
        }
        for node in graph.nodes:
            node.affinity = owners[node.name].device
            node.metadata["subgraph"] = str(owners[node.name].index)
        return graph

    def explain(self) -> str:
        parts = zip(self.partition.subgraphs, self._networks, strict=True)
        lines = [explain_partition(self.partition)]
        for subgraph, network in parts:
            told = [*network.remarks, *network.how_computed()]
            if told:
                title = f"numbers of subgraph {subgraph.index} on {subgraph.device}:"
                lines.append("\n  ".join([title, *told]))
        return "\n".join([*lines, self.reason] if self.reason else lines)

    def diagram(self, language: Literal["dot", "svg"]) -> str:
        """Draw every node in the colour of its device, and what crosses with its size."""
        return (subgraphs_dot if language == "dot" else affinity_svg)(self.partition)

    def subgraph_models(self) -> list[tuple[str, Model]]:
        """Return each subgraph's device and a copy of its model, in order of execution.

        O(model). Raises NotSupportedError where the weights went as the devices compiled them,
        which they do unless the caller holds the model.
        """
        if self._original.is_disposable:
            raise NotSupportedError(
                f"network {self.name!r} has freed its weights; read the model first, with "
                f"core.read_model, and load that",
                **self.admission.where,
            )
        wanted = [Subgraph(piece.device, piece.nodes) for piece in self._cut.subgraphs]
        cut = cut_model(self._whole, wanted)  # what was cut for the devices is theirs
        return [(piece.device, piece.model) for piece in cut.subgraphs]

    def trace(self) -> Trace:
        traces = [super().trace()]
        for index, network in enumerate(self._networks):
            trace = network.trace()
            spans = [span._replace(stage=_prefixed(index, span.stage)) for span in trace]
            traces.append(Trace(trace.network, trace.device, spans, trace.forgot_until_ns))
        return Trace.merged(self.name, self.device, traces)

    def _stage_tallies(self) -> list[StageTally]:
        tallies = [
            dataclasses.replace(tally, stage=_prefixed(index, tally.stage))
            for index, network in enumerate(self._networks)
            for tally in network._stage_tallies()
        ]
        tallies += super()._stage_tallies()
        lanes: dict[str, int] = {}
        for tally in tallies:
            lanes[tally.executor] = max(lanes.get(tally.executor, 0), tally.lane_count)
        return [dataclasses.replace(item, lane_count=lanes[item.executor]) for item in tallies]

    def _copied_bytes(self) -> CopyCounts:
        parts = [
            {_prefixed(index, stage): counts for stage, counts in network._copied_bytes().items()}
            for index, network in enumerate(self._networks)
        ]
        return merged_counts([*parts, super()._copied_bytes()])

    def _plan_statistics(self) -> PlanStatistics:
        return PlanStatistics.total(network._plan_statistics() for network in self._networks)

    def _part_statistics(self) -> tuple[NetworkStatistics, ...]:
        return tuple([network.statistics() for network in self._networks])

    def get_config(self, key: str) -> Any:
        """Return a property; DEVICE_PROPERTIES are all that its devices were compiled with."""
        return (
            self._device_properties() if key == DEVICE_PROPERTIES.key else super().get_config(key)
        )

    def _device_properties(self) -> dict[str, dict[str, Any]]:
        pairs = zip(self.partition.subgraphs, self._networks, strict=True)
        return {subgraph.device: dict(network.config) for subgraph, network in pairs}

    def _metrics(self) -> Sequence[Metric]:
        return [
            Metric("NUMBER_OF_SUBGRAPHS", lambda _: len(self._networks), "Pieces of the model."),
            Metric(
                DEVICE_PROPERTIES.key,
                lambda _: self._device_properties(),
                "What each device was compiled with: {device: {key: value}}.",
            ),
        ]

    def _write_payload(self, blob: BlobWriter) -> None:
        whole = self._original.with_graph(self._graph)
        write_division(blob, whole, self._port_types, self._cut, self.partition)
        for index, network in enumerate(self._networks):
            network.write_blob(blob.under(part_name(index)))

    def _release_device(self) -> None:
        for network in self._networks:
            network.close()
        if self._copies is not None:
            self._core.executors.release(self._copies)
        if self._original.is_disposable:  # or the models are the caller's to ask for
            for model in (self._original, *(piece.model for piece in self._cut.subgraphs)):
                release_constants(model.graph)
            release_constants(self._graph)


class _HeteroSlot(Slot):
    """One run through the networks of all subgraphs."""

    def __init__(self, network: HeteroNetwork) -> None:
        self._network = network
        self._then: Then | None = None
        self._collected: HostReady | None = None
        """What the caller waits for while a token is waited for."""
        self._linked = LinkedRun(network._subnetworks)

    def _made_stages(self) -> tuple[Stage, ...]:
        """Make a stage for each subgraph: of many, and slots that no run has come to have none."""
        stages = self._linked.stages()
        if self._network._copies is not None:
            stages.append(Stage("copy", self._network._copies, self._copy_passed))
        return tuple(stages)

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> GraphRun:
        self.stages = self.stages or self._made_stages()
        self._linked.take(self.bindings, stop)
        self._then, graph = then, self._network._stage_graph
        run = GraphRun(self.stages, graph, stop, self._ended, recorder, self.bindings.mark())
        run.start(after)
        return run

    def release(self) -> None:
        self._linked.release()
        self._then = self._collected = None

    def _ended(self, ready: Ready, error: BaseException | None) -> None:
        """Collect the outputs as soon as the last token says that they are there."""
        if error is not None or ready is NOW or ready.is_ready:
            self._end(ready, self._for_whole(error or ready.error) or self._collect())
            return
        collected = self._collected = HostReady()
        ready.when_ready(self._fired)
        self._end(collected, None)

    def _fired(self, late: BaseException | None) -> None:
        error = self._for_whole(late) or self._collect()
        collected, self._collected = self._collected, None
        if collected is not None:
            collected.fire(error)

    def _end(self, ready: Ready, error: BaseException | None) -> None:
        then, self._then = self._then, None
        assert then is not None
        try:
            then(ready, error)
        except Exception as raised:  # no memory for the call
            tell_owner(then, (ready,), raised)

    def hop_failed(self, error: BaseException) -> None:
        """End: there was no memory for a call to this run, for which nothing works."""
        collected, self._collected = self._collected, None
        if self._then is not None:
            self._end(NOW, self._linked.stop.error or error)
        elif collected is not None:
            collected.fire(error)

    def _for_whole(self, error: BaseException | None) -> BaseException | None:
        """Return the error of a part with the way out for the caller, which loaded the whole."""
        if not isinstance(error, UnsupportedOpError):
            return error
        for_whole = error.told_to(self._network.device)
        for_whole.__cause__ = error
        return for_whole

    def _collect(self) -> BaseException | None:
        network, bindings, run = self._network, self.bindings, self._linked
        try:
            made = dict(bindings.results)
            bindings.results.clear()
            for port, place in zip(network.model_outputs, network._cut.outputs, strict=True):
                source = made if place is None else run.made_by(place.subgraph)
                bindings.results[port.name] = source[port.name]
            if bindings.profile is not None:
                for index in range(len(network._networks)):
                    profile = run.profile_of(index)
                    bindings.profile += [
                        dataclasses.replace(entry, name=_prefixed(index, entry.name))
                        for entry in profile
                    ]
                    bindings.profile.copies += [
                        copied._replace(stage=_prefixed(index, copied.stage))
                        for copied in profile.copies
                    ]
        except BaseException as error:
            return error
        return None

    def _copy_passed(self, _lane: Lane) -> Ready:
        network, bindings = self._network, self.bindings
        for index, port in enumerate(network.model_outputs):
            if network._cut.outputs[index] is not None:
                continue
            name = network._cut.passed_inputs.get(index)
            value = network._cut.constants[index] if name is None else bindings.inputs[name]
            with shortage_as_error(f"copying output {port.name!r} of {network.name!r}"):
                copied = _copy(value)
            size_bytes = _size_bytes(copied) + bindings.deliver(port.name, copied)
            bindings.note_copied(network.admission.recorder, "copy", "host", size_bytes)
        return NOW


def _subnetworks(
    cut: CutModel, networks: Sequence[ExecutableNetwork], inputs: Sequence[Port]
) -> list[SubNetwork]:
    crossings: list[list[Crossing]] = [[] for _ in networks]
    ends = [f"{piece.device} (subgraph {index})" for index, piece in enumerate(cut.subgraphs)]
    for link in cut.links:
        source = link.source.subgraph
        for target, number in link.targets:
            promised = networks[target].model_inputs[number].type
            crossing = Crossing(link.value, source, promised, ends[source], ends[target])
            crossings[target].append(crossing)
    outer: list[list[str]] = [[] for _ in networks]
    for port, places in zip(inputs, cut.inputs, strict=True):
        for place in places:
            outer[place.subgraph].append(port.name)
    return [
        SubNetwork(
            network,
            tuple(outer[index]),
            tuple(crossings[index]),
            tuple(port.name for port in network.model_outputs),
        )
        for index, network in enumerate(networks)
    ]


def _adopts(network: ExecutableNetwork, name: str, kept: KeptArray) -> bool:
    adopt = None if name in network.host_inputs else network.adopt_array
    return adopt is not None and adopt(kept, f"input {name!r}") is not None


def _prefixed(index: int, name: str) -> str:
    return f"subgraph{index}: {name}"


def _size_bytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size_bytes, value))
    return int(getattr(value, "nbytes", 0))


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return np.array(value, order="C") if isinstance(value, np.ndarray) else value
