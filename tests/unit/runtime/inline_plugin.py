"""INLINE: a device whose short runs may stay with their callers; its stage is the test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioinfer.executors import NOW, Lane, Ready, StreamsConfig
from aioinfer.runtime.devices.plugin import CoreHandle, Plugin
from aioinfer.runtime.graph import Graph, Model, copy_graph
from aioinfer.runtime.network.executable_network import ExecutableNetwork, Slot
from aioinfer.runtime.properties.properties import Configuration
from aioinfer.runtime.runs.stage import Stage
from aioinfer.runtime.tensors.tensor import ports_of

Compute = Callable[[Slot, Lane], None]


class InlinePlugin(Plugin):
    """y = 2 x, on two slots of one stream."""

    def device_ids(self) -> list[str]:
        return [""]

    def full_device_name(self, device_id: str) -> str:
        return "inline device"

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return {}

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        return InlineNetwork(model, config, self.core)


class InlineNetwork(ExecutableNetwork):
    """``compute`` is called in each run, before the outputs are made."""

    def __init__(self, model: Model, config: Configuration, core: CoreHandle) -> None:
        super().__init__(
            name=model.name,
            device="INLINE",
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self._graph = model.graph
        self.compute: Compute = lambda _slot, _lane: None
        self.streams = core.executors.acquire(StreamsConfig("INLINE"))
        self._provide_slots([_Slot(self) for _ in range(2)])

    def runtime_graph(self) -> Graph:
        return copy_graph(self._graph)

    def _release_device(self) -> None:
        self._core.executors.release(self.streams)


class _Slot(Slot):
    may_run_inline = True

    def __init__(self, network: InlineNetwork) -> None:
        self._network = network
        self.stages = (Stage("compute", network.streams, self._compute),)

    def _compute(self, lane: Lane) -> Ready:
        self._network.compute(self, lane)
        inputs: dict[str, Any] = self.bindings.inputs
        self.bindings.deliver("y", inputs["x"] * 2)
        return NOW
