"""Mock devices MOCK.0, MOCK.1, ...: they do nothing until the test says so, and then it right.

A mock device computes real answers, one operator at a time on numpy, but when it does so is the
test's choice: with a held device each run waits in its ``executor`` until the test releases it;
with a streamed one each run is enqueued on its ``streams``, whose events the test fires. What
fails is the test's choice as well: ``stage_fault`` and ``device_fault``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import TensorError
from ...executors import (
    NOW,
    DeviceStreamExecutor,
    HostReady,
    Lane,
    ManualExecutor,
    ManualStream,
    ManualStreams,
    Ready,
    TaskExecutor,
)
from ..devices.plugin import CoreHandle, Plugin
from ..graph import Graph, Model, Node, Value, copy_graph
from ..network.executable_network import ExecutableNetwork, Slot
from ..operators import Operator, find_unsupported, make_operator
from ..properties.properties import Configuration
from ..runs.stage import Stage
from ..tensors.tensor import ports_of

__all__ = ["Fault", "MockDevice", "MockDevices", "MockPlugin"]

Fault = Callable[[str], BaseException | None]
"""Gives the failure of the stage of this name in this run, or None. Any thread may ask."""


class MockDevice:
    """One mock device; ``executor`` holds its runs, or ``streams`` do if it is streamed."""

    def __init__(self, name: str, executor: TaskExecutor | None, is_streamed: bool) -> None:
        self.name = name
        self.held: ManualExecutor = ManualExecutor(name)
        self.executor: TaskExecutor = executor or self.held
        self.streams: ManualStreams | None = ManualStreams(name) if is_streamed else None
        self.refused_ops: dict[str, str] = {}
        """Operator type -> the reason why this device cannot run it."""
        self.stage_fault: Fault | None = None
        """What a stage's function raises; on a streamed device after it has enqueued its work."""
        self.device_fault: Fault | None = None
        """What the device fails with at a stage's work: the stage's token fires with it."""
        self.slot_count = 2
        self.loaded: list[Model] = []
        """The models that were compiled for it, in order."""
        self._stream_executors: dict[str, DeviceStreamExecutor] = {}

    def stream_executor(self, name: str) -> DeviceStreamExecutor:
        """Return the one executor of a stream of a streamed device, for all slots and networks.

        With two, their commands would mix on the stream, and with them their errors.
        """
        assert self.streams is not None
        made = DeviceStreamExecutor(self.streams.stream(name))
        return self._stream_executors.setdefault(name, made)


class MockDevices:
    """The devices of one MOCK plugin: ``core.register_plugin("MOCK", MockDevices(2).make_plugin)``.

    ``executor``: where runs compute instead of being held, for tests that want no control.

    ```python
    import onnx.parser

    from aioinfer.testing import MockDevices

    text = '<ir_version: 10, opset_import: ["": 20]> g (float[2] x) => (float[2] y) {y = Relu(x)}'
    devices = MockDevices(1)
    with aioinfer.Core() as core:
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(onnx.parser.parse_model(text), "MOCK")
        request = network.create_infer_request()
        request.start_async(np.ones(2, np.float32))
        assert not request.wait(0)  # the device holds the run
        devices[0].held.release()
        request.wait()
    ```
    """

    def __init__(
        self, count: int = 2, *, executor: TaskExecutor | None = None, is_streamed: bool = False
    ) -> None:
        names = [f"MOCK.{index}" for index in range(count)]
        self.devices = [MockDevice(name, executor, is_streamed) for name in names]

    def make_plugin(self, core: CoreHandle, name: str) -> Plugin:
        """Make the plugin; give this to ``register_plugin``."""
        return MockPlugin(core, name, self.devices)

    def __getitem__(self, index: int) -> MockDevice:
        return self.devices[index]


class MockPlugin(Plugin):
    """Drives mock devices."""

    def __init__(self, core: CoreHandle, name: str, devices: Sequence[MockDevice]) -> None:
        super().__init__(core, name)
        self._devices = list(devices)

    def device_ids(self) -> list[str]:
        return [str(index) for index in range(len(self._devices))]

    def full_device_name(self, device_id: str) -> str:
        return f"mock device {device_id or '0'}"

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        device = self._device(config)
        reasons = {}
        for node in model.graph.nodes:
            reason = device.refused_ops.get(node.op_type) or find_unsupported(node, model.opsets)
            if node.bodies():
                reason = "it has no control flow"
            if reason is not None:
                reasons[node.name] = reason
        return reasons

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        device = self._device(config)
        device.loaded.append(model)
        return MockNetwork(model, config, self.core, device)

    def _device(self, config: Configuration) -> MockDevice:
        return self._devices[int(config["DEVICE_ID"])]


class MockNetwork(ExecutableNetwork):
    """A model on a mock device."""

    def __init__(
        self, model: Model, config: Configuration, core: CoreHandle, device: MockDevice
    ) -> None:
        super().__init__(
            name=model.name,
            device=device.name,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
        )
        self._graph = model.graph
        evaluate = _evaluation(model)
        slot_type = _HeldSlot if device.streams is None else _StreamedSlot
        self._provide_slots([slot_type(device, evaluate) for _ in range(device.slot_count)])

    def runtime_graph(self) -> Graph:
        return copy_graph(self._graph)


Evaluate = Callable[[Mapping[str, Any]], dict[str, Any]]


class _HeldSlot(Slot):
    """One stage, which waits in the device's executor."""

    def __init__(self, device: MockDevice, evaluate: Evaluate) -> None:
        self._device, self._evaluate = device, evaluate
        self.stages = (Stage("compute", device.executor, self._compute),)

    def _compute(self, _lane: Lane) -> Ready:
        _raise_fault(self._device.stage_fault, "compute")
        failure = _failure(self._device.device_fault, "compute")
        if failure is not None:
            failed = HostReady()
            failed.fire(failure)
            return failed
        for name, value in self._evaluate(self.bindings.inputs).items():
            self.bindings.deliver(name, value)
        return NOW


class _StreamedSlot(Slot):
    """Upload, compute and download, each enqueued on a stream of its own."""

    def __init__(self, device: MockDevice, evaluate: Evaluate) -> None:
        assert device.streams is not None
        self._evaluate = evaluate
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        stages = []
        for name, action in (
            ("upload", self._upload),
            ("compute", self._compute),
            ("download", self._download),
        ):
            function = _enqueue(device, device.streams.stream(name), name, action)
            stages.append(Stage(name, device.stream_executor(name), function))
        self.stages = tuple(stages)

    def _upload(self) -> None:
        self._inputs = dict(self.bindings.inputs)

    def _compute(self) -> None:
        self._outputs = self._evaluate(self._inputs)

    def _download(self) -> None:
        for name, value in self._outputs.items():
            self.bindings.deliver(name, value)

    def release(self) -> None:
        self._inputs, self._outputs = {}, {}


def _enqueue(
    device: MockDevice, stream: ManualStream, name: str, action: Callable[[], None]
) -> Callable[[Lane], Ready]:
    def work() -> None:
        _raise_fault(device.device_fault, name)
        action()

    def function(_lane: Lane) -> Ready:
        stream.enqueue(name, work)
        _raise_fault(device.stage_fault, name)
        return NOW  # the executor records the event

    return function


def _failure(fault: Fault | None, stage: str) -> BaseException | None:
    return None if fault is None else fault(stage)


def _raise_fault(fault: Fault | None, stage: str) -> None:
    failure = _failure(fault, stage)
    if failure is not None:
        raise failure


def _evaluation(model: Model) -> Evaluate:
    """Bind the operators of a graph, and return what computes its outputs by name."""
    graph = model.graph
    steps: list[tuple[Node, Operator]] = [
        (node, make_operator(node, model.opsets)) for node in graph.nodes
    ]

    def evaluate(inputs: Mapping[str, Any]) -> dict[str, Any]:
        known: dict[Value, Any] = {value: inputs[value.name] for value in graph.inputs}

        def content(value: Value | None) -> Any:
            if value is None:
                return None
            return value.constant if value.is_constant else known[value]

        with np.errstate(all="ignore"):
            for node, operator in steps:
                try:
                    results = operator(*[content(value) for value in node.inputs])
                except (ValueError, IndexError) as error:
                    raise TensorError(f"{node.op} (node {node.name!r}): {error}") from error
                known.update(zip(node.outputs, results, strict=False))
        return {value.name: _own_copy(content(value)) for value in graph.outputs}

    return evaluate


def _own_copy(value: Any) -> Any:
    return np.array(value, order="C") if isinstance(value, np.ndarray) else value
