"""The networks that the stress test loads, and the devices under them, which fail at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.executors import Lane, StreamsConfig, StreamsExecutor
from aioinfer.runtime.network.executable_network import Slot
from aioinfer.testing import DeviceThread, MockDevices
from presence import IS_REQUIRED
from stress.faults import AbruptError, PlantedDeviceError, RandomFault, StageError
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin
from unit.runtime.models import expected, tiny_model

COMMON = (
    *("MOCK.0", "STREAMED.0", "INLINE"),
    *("HETERO:MOCK.0,MOCK.1", "HETERO:STREAMED.0,STREAMED.1"),
    *("BATCH:MOCK.0(4)", "BATCH:STREAMED.1(4)"),
    *("MULTI:MOCK.0,MOCK.1", "MULTI:STREAMED.0,STREAMED.1"),
)
SMALL = "SMALL"
SMALL_DEVICES = ("CPU", "ONNXRUNTIME")
SMALL_SHAPE = (2, 3)
MOST_WAITING = 3


@dataclass(frozen=True)
class Target:
    """A network, and what it should give."""

    network: aioinfer.ExecutableNetwork
    expected: Callable[[np.ndarray], np.ndarray]


class Networks:
    """Loads networks of every kind: COMMON ones, and SMALL, if ``has_small``.

    A run of a small one stays on its caller's thread and has no slot.
    """

    def __init__(self, core: aioinfer.Core, chance: random.Random, stack: ExitStack) -> None:
        def drawn() -> random.Random:
            return random.Random(chance.random())

        threads = stack.enter_context(StreamsExecutor(StreamsConfig("MOCK", 2)))
        self._mock = MockDevices(2, executor=threads)
        self._streamed = MockDevices(2, is_streamed=True)
        self._devices = [*self._mock.devices, *self._streamed.devices]
        fakes = [device.streams for device in self._devices if device.streams is not None]
        stack.enter_context(DeviceThread(fakes, drawn()))
        for device in self._devices:
            device.slot_count = 4
            device.stage_fault = RandomFault((StageError, StageError, AbruptError), drawn())
            device.device_fault = RandomFault((PlantedDeviceError,), drawn())
        self._inline_fault = RandomFault((StageError,), drawn())
        self.core = stack.enter_context(core)
        self.add_devices(core)
        self._small_device = ""
        self.small_reasons: list[str] = []
        """Why devices that come before the one of small networks are not here."""
        for name in SMALL_DEVICES:
            try:
                self._small_device = core.resolve_device(name)
                break
            except DeviceError as error:
                self.small_reasons.append(str(error))
        if IS_REQUIRED and not self.has_small:
            pytest.fail("; ".join(self.small_reasons))

    @property
    def has_small(self) -> bool:
        return bool(self._small_device)

    def add_devices(self, core: aioinfer.Core) -> None:
        """Have a core know the mock devices."""
        core.register_plugin("MOCK", self._mock.make_plugin)
        core.register_plugin("STREAMED", self._streamed.make_plugin)
        core.register_plugin("INLINE", InlinePlugin)

    def load(self, kind: str, core: aioinfer.Core, **config: Any) -> Target:
        """Load a model on the device of this name, or SMALL."""
        if kind == SMALL:
            config |= {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
            return Target(core.load_network(small_model(), self._small_device, config), expected)
        if kind.startswith("HETERO:"):  # each node goes to one of the two devices
            first, second = kind.removeprefix("HETERO:").split(",")
            config["AFFINITY"] = {"relu": first, "add": second}
        network = core.load_network(tiny_model(), kind, config)
        for device in self._devices:
            device.loaded.clear()  # it remembers the models, which would grow until the end
        if not isinstance(network, InlineNetwork):
            return Target(network, expected)
        network.compute = self._compute_inline
        return Target(network, doubled)

    def _compute_inline(self, _slot: Slot, _lane: Lane) -> None:
        failure = self._inline_fault("compute")
        if failure is not None:
            raise failure


@contextmanager
def devices(seed: int) -> Iterator[Networks]:
    """Set up a core and its devices; in the end all networks are closed, and then the devices.

    After a failure nothing is closed: a run that got lost would hold that up for ever.
    """
    stack = ExitStack()
    yield Networks(aioinfer.Core(), random.Random(seed), stack)
    stack.close()


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def small_model() -> onnx.ModelProto:
    """y = relu(x) + x, for float32 x of one fixed shape."""
    model = tiny_model("small")
    for value in (*model.graph.input, *model.graph.output):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, SMALL_SHAPE))
    return model
