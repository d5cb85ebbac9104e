"""What the stress test loads: five networks whose devices fail at random."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

import aioinfer
from aioinfer.executors import Lane, StreamsConfig, StreamsExecutor
from aioinfer.runtime.executable_network import Slot
from aioinfer.testing import DeviceThread, MockDevices
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin
from unit.runtime.models import expected, tiny_model

FAULT_RATE = 0.02
LOSS_RATE = 0.0005
LOST_STAGES = 20


class StageError(Exception):
    """Planted: a stage's function has raised."""


class PlantedDeviceError(Exception):
    """Planted: the device has failed at a stage's work."""


class AbruptError(BaseException):
    """Planted: a stage has raised what is no Exception."""


PLANTED = (StageError, PlantedDeviceError, AbruptError)


class RandomFault:
    """One stage in fifty fails, and now and then the device is lost for the next twenty."""

    def __init__(self, kinds: tuple[type[BaseException], ...], chance: random.Random) -> None:
        self._kinds, self._chance = kinds, chance
        self._lost_count = 0

    def __call__(self, stage: str) -> BaseException | None:
        number = self._chance.random()
        if self._lost_count > 0:
            self._lost_count -= 1
        elif number < LOSS_RATE:
            self._lost_count = LOST_STAGES
        elif number > FAULT_RATE:
            return None
        return self._chance.choice(self._kinds)(f"planted in stage {stage!r}")


@dataclass(frozen=True)
class Target:
    """A network, and what it should give."""

    network: aioinfer.ExecutableNetwork
    expected: Callable[[np.ndarray], np.ndarray]


class Plant:
    """The networks, the count of runs that are still to come, and the requests of the last ones."""

    def __init__(self, targets: list[Target], run_count: int, seed: int) -> None:
        self.targets, self.run_count, self.seed = targets, run_count, seed
        self.taken_count = 0
        self._numbers = itertools.count(1)
        self._recent: deque[aioinfer.InferRequest] = deque(maxlen=64)

    def take(self) -> bool:
        """Take one of the runs that are to be made; False when all are."""
        number = next(self._numbers)
        if number > self.run_count:
            return False
        self.taken_count = number
        return True

    def show(self, request: aioinfer.InferRequest) -> None:
        """Say that this request runs, so that anybody may cancel it."""
        self._recent.append(request)

    def cancel_another(self, chance: random.Random) -> None:
        """Sometimes cancel what anybody has started lately."""
        if self._recent and chance.random() < 0.05:
            self._recent[chance.randrange(len(self._recent))].cancel()

    def forget(self) -> None:
        self._recent.clear()


@contextmanager
def planted(run_count: int, seed: int) -> Iterator[Plant]:
    """Load the networks; in the end they are closed, and then their devices.

    After a failure nothing is closed: a run that got lost would hold that up for ever.
    """
    chance = random.Random(seed)

    def drawn() -> random.Random:
        return random.Random(chance.random())

    stack = ExitStack()
    threads = stack.enter_context(StreamsExecutor(StreamsConfig("MOCK", 2)))
    mock, streamed = MockDevices(2, executor=threads), MockDevices(2, is_streamed=True)
    fakes = [device.streams for device in streamed.devices if device.streams is not None]
    stack.enter_context(DeviceThread(fakes, drawn()))
    core = stack.enter_context(aioinfer.Core())
    core.register_plugin("MOCK", mock.make_plugin)
    core.register_plugin("STREAMED", streamed.make_plugin)
    core.register_plugin("INLINE", InlinePlugin)
    for device in (*mock.devices, *streamed.devices):
        device.slot_count = 4
        device.stage_fault = RandomFault((StageError, StageError, AbruptError), drawn())
        device.device_fault = RandomFault((PlantedDeviceError,), drawn())
    yield Plant(
        [
            Target(load(core, "MOCK.0"), expected),
            Target(load(core, "STREAMED.0"), expected),
            Target(load(core, "HETERO:MOCK.0,MOCK.1"), expected),
            Target(load(core, "HETERO:STREAMED.0,STREAMED.1"), expected),
            Target(load_inline(core, RandomFault((StageError,), drawn())), doubled),
        ],
        run_count,
        seed,
    )
    stack.close()


def load(core: aioinfer.Core, device: str) -> aioinfer.ExecutableNetwork:
    """Load the model; over two devices each of its nodes goes to one of them."""
    if not device.startswith("HETERO:"):
        return core.load_network(tiny_model(), device)
    first, second = device.removeprefix("HETERO:").split(",")
    return core.load_network(tiny_model(), device, {"AFFINITY": {"relu": first, "add": second}})


def load_inline(core: aioinfer.Core, fault: RandomFault) -> InlineNetwork:
    """Load the device whose short runs stay on the threads of their callers."""
    network = core.load_network(tiny_model(), "INLINE")
    assert isinstance(network, InlineNetwork)

    def compute(_slot: Slot, _lane: Lane) -> None:
        failure = fault("compute")
        if failure is not None:
            raise failure

    network.compute = compute
    return network


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x
