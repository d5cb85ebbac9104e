"""TIMED: mock devices whose every node is a stage on a thread of its own, and takes its time.

A network of TIMED.0, TIMED.1, ... runs its nodes in a line. What a node does besides its operator
is given by name, as :class:`Work`; that notes how long it took each time.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from aioinfer import ExecutableNetwork, Plugin
from aioinfer.errors import UnsupportedOpError
from aioinfer.executors import NOW, Lane, Ready, StreamsConfig
from aioinfer.runtime.devices.plugin import CoreHandle
from aioinfer.runtime.graph import Graph, Model, Node, copy_graph
from aioinfer.runtime.network.executable_network import Slot
from aioinfer.runtime.properties.properties import Configuration
from aioinfer.runtime.runs.stage import Stage
from aioinfer.runtime.tensors.tensor import ports_of

Array = npt.NDArray[np.float32]

OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "Relu": lambda array: np.maximum(array, 0),
}
PR_SET_TIMERSLACK = 29  # linux/prctl.h


class Work:
    """What a node does: it waits or computes without the GIL, then its operator; and is timed.

    ``services_ns`` holds when each call ended, and how long it took. A node is one stage, and a
    stage has one thread.
    """

    def __init__(self, act: Callable[[], object], operator: str = "Relu") -> None:
        self._act, self._operator = act, OPERATORS[operator]
        self.services_ns: list[tuple[int, int]] = []

    def __call__(self, *arrays: Array) -> Array:
        began_ns = time.perf_counter_ns()
        self._act()
        result = self._operator(*arrays)
        ended_ns = time.perf_counter_ns()
        self.services_ns.append((ended_ns, ended_ns - began_ns))
        return result


def sleep_exactly() -> None:
    """Have threads that start from now on wake within microseconds of their time, where Linux can.

    Python sleeps by ``clock_nanosleep`` until a time; what makes it late is the thread's slack of
    50 us, which a thread inherits.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def waiting(seconds: float) -> Callable[[], object]:
    """Wait on a timer, as for a device."""
    return partial(time.sleep, seconds)


def computing(seconds: float) -> Callable[[], object]:
    """Compute on this thread for about so long, in one native call; measured when it is made."""
    numbers = np.linspace(0.0, 1.0, 1 << 16)
    np.exp(numbers, out=numbers)
    times_s = []
    for _ in range(21):
        began_s = time.perf_counter()
        np.exp(numbers, out=np.empty_like(numbers))
        times_s.append(time.perf_counter() - began_s)
    some = np.linspace(0.0, 1.0, max(1, round(seconds / sorted(times_s)[5] * numbers.size)))
    return partial(np.exp, some, out=np.empty_like(some))


class TimedPlugin(Plugin):
    """Drives as many devices as a benchmark wants; ``works`` by the name of the node."""

    def __init__(
        self, core: CoreHandle, name: str, works: Mapping[str, Work], device_count: int
    ) -> None:
        super().__init__(core, name)
        self._works, self._device_count = works, device_count

    def device_ids(self) -> list[str]:
        return [str(index) for index in range(self._device_count)]

    def full_device_name(self, device_id: str) -> str:
        return f"mock device {device_id or '0'}"

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return {
            node.name: f"TIMED has no work for {node.name!r}"
            for node in model.graph.nodes
            if node.name not in self._works
        }

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        for name, reason in self.find_unsupported(model, config).items():
            raise UnsupportedOpError(name, model.node(name).op, config.device, reason)
        return TimedNetwork(model, config, self.core, self._works)


class TimedNetwork(ExecutableNetwork):
    """A line of nodes, each a stage on an executor of its own."""

    def __init__(
        self, model: Model, config: Configuration, core: CoreHandle, works: Mapping[str, Work]
    ) -> None:
        super().__init__(
            name=model.name,
            device=f"TIMED.{config['DEVICE_ID']}",
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self.graph, self.works = model.graph, works
        self.executors = [
            core.executors.acquire(StreamsConfig(f"{self.device}.{node.name}", 1, 1))
            for node in model.graph.nodes
        ]
        self._provide_slots([TimedSlot(self) for _ in range(2 * len(self.executors))])

    def runtime_graph(self) -> Graph:
        return copy_graph(self.graph)

    def _release_device(self) -> None:
        for executor in self.executors:
            self._core.executors.release(executor)


class TimedSlot(Slot):
    """One run on its way through the nodes."""

    def __init__(self, network: TimedNetwork) -> None:
        self._values: dict[str, Any] = {}
        nodes = list(network.graph.nodes)
        outputs = {value.name for value in network.graph.outputs}
        self.stages = tuple(
            Stage(
                node.name,
                executor,
                partial(self._run, node, network.works[node.name], outputs),
            )
            for node, executor in zip(nodes, network.executors, strict=True)
        )

    def _run(self, node: Node, work: Work, outputs: set[str], _lane: Lane) -> Ready:
        values, given = self._values, self.bindings.inputs
        arrays = [values[name] if name in values else given[name] for name in names_of(node)]
        (output,) = node.outputs
        result = values[output.name] = work(*arrays)
        if output.name in outputs:
            self.bindings.deliver(output.name, result)
        return NOW

    def release(self) -> None:
        self._values.clear()
        super().release()


def names_of(node: Node) -> list[str]:
    """List the names of what a node takes."""
    return [value.name for value in node.inputs if value is not None]
