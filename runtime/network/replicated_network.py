"""ReplicatedNetwork: what a network says of itself that is loaded whole on several devices."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

from ...executors import Lane
from ..graph import Graph
from ..runs.bindings import Bindings
from ..runs.error_frames import empty_own_frames
from ..runs.stage import Stop
from ..tracing.copied_bytes import CopyCounts, merged_counts
from ..tracing.recorder import StageTally
from ..tracing.statistics import DeviceStatistics, NetworkStatistics, PlanStatistics
from ..tracing.timeline import Trace
from ..tracing.totals import Numbers, merged_parts, merged_tallies
from .executable_network import ExecutableNetwork
from .warm_up import run_in_slots

__all__ = ["ReplicatedNetwork", "numbers_of"]


class ReplicatedNetwork(ExecutableNetwork):
    """One model on several devices, of which one serves a run; their numbers are added up.

    A subclass provides the slots, owns the networks, and closes them.
    """

    def local_keys(self) -> frozenset[str]:
        return super().local_keys().union(*(network.local_keys() for network in self.networks))

    @property
    @abstractmethod
    def networks(self) -> tuple[ExecutableNetwork, ...]:
        """The networks that are loaded now, that which is asked for facts first."""

    @abstractmethod
    def _device_statistics(self) -> tuple[DeviceStatistics, ...]:
        """Picture the devices, the preferred one first."""

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        for network in self.networks:
            run_in_slots(network, inputs, 1, stop)
            stop.raise_if_set()
            network.run_everywhere(inputs, stop)

    def run_kept_everywhere(self, stop: Stop) -> None:
        for network in self.networks:
            network.run_kept_everywhere(stop)

    def begin_ahead(self, count: int) -> None:
        for network in self.networks:
            network.begin_ahead(count)

    def end_ahead(self) -> list[str]:
        return [lost for network in self.networks for lost in network.end_ahead()]

    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that the first device executes."""
        networks = self.networks
        if not networks:
            self.refuse_if_closed()
        return networks[0].runtime_graph()

    def statistics(self) -> NetworkStatistics:
        return dataclasses.replace(super().statistics(), devices=self._device_statistics())

    def trace(self) -> Trace:
        traces = [super().trace(), *(network.trace() for network in self.networks)]
        return Trace.merged(self.name, self.device, traces)

    def _stage_tallies(self) -> list[StageTally]:
        networks, gone = self._counted()
        tallies = [tally for network in networks for tally in network._stage_tallies()]
        return merged_tallies([*super()._stage_tallies(), *tallies, *gone.tallies])

    def _copied_bytes(self) -> CopyCounts:
        networks, gone = self._counted()
        parts = [network._copied_bytes() for network in networks]
        return merged_counts([super()._copied_bytes(), *parts, gone.copied_bytes])

    def _plan_statistics(self) -> PlanStatistics:
        networks, gone = self._counted()
        return PlanStatistics.total(
            [*(network._plan_statistics() for network in networks), gone.plans]
        )

    def _part_statistics(self) -> tuple[NetworkStatistics, ...]:
        networks, gone = self._counted()
        return merged_parts([*(network.statistics() for network in networks), *gone.parts])

    def _counted(self) -> tuple[tuple[ExecutableNetwork, ...], Numbers]:
        """Return the networks to ask for numbers, and the numbers of those that are closed."""
        return self.networks, _NONE

    def note_failure(
        self, bindings: Bindings, device: str, error: BaseException, taken_s: float
    ) -> None:
        """Have the trace show what a run has done in vain, before it goes on elsewhere.

        The error may be kept for long, so what our own frames of it hold is released.
        """
        empty_own_frames(error)
        ended_ns = perf_counter_ns()
        started_ns = max(bindings.arrived_ns, ended_ns - round(taken_s * 1e9))
        stage = _FailedStage(device, type(error).__name__)
        record = self.admission.recorder.record
        record(bindings.mark(), stage, Lane(device), started_ns, started_ns, ended_ns)
        bindings.results.clear()
        if bindings.profile:
            bindings.profile.clear()


_NONE = Numbers()


def numbers_of(network: ExecutableNetwork) -> Numbers:
    """Picture what a network, which is closed, has done."""
    return Numbers(
        tuple(network._stage_tallies()),
        network._copied_bytes(),
        network._plan_statistics(),
        (network.statistics(),),
    ).of_closed()


class _FailedStage:
    """What a span says of a run that has failed on a device and goes on to another."""

    def __init__(self, device: str, error: str) -> None:
        self.place = f"failed on {device}", device
        self.part: object = error
