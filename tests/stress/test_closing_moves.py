"""Networks that are closed while runs move, devices are tried and AUTO starts: all settles once.

Tens of thousands of requests, over many networks. Each network is closed after a random number of
answers, with and without draining, by one caller or by two at once; its users go on asking.
"""

from __future__ import annotations

import gc
import logging
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.multi import health
from aioinfer.errors import ClosedError, NotSupportedError
from aioinfer.executors import StreamsConfig, StreamsExecutor
from aioinfer.runtime.graph import Model
from aioinfer.runtime.network.executable_network import ExecutableNetwork
from aioinfer.runtime.properties.properties import Configuration, Metric
from aioinfer.testing import DeviceThread, MockDevices, MockPlugin
from stress.test_moving import Dying, MovedTasks, MovedThread
from stress.users import RUN_COUNT, SEED, Users, all_ask, lookup_model

RUNS_OF_ONE = 400
WAIT_S = 60.0


class Answers:
    """Counts what users are answered, and tells when there are enough to close."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self.are_enough = threading.Event()

    def note(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self.are_enough.set()


class ClosedUsers(Users):
    """Users whose network is closed when they have been answered so often."""

    answers: Answers

    def check(self, x: np.ndarray[Any, Any], outputs: Any) -> None:
        super().check(x, outputs)
        self.answers.note()

    def note(self, x: np.ndarray[Any, Any], error: BaseException) -> None:
        if isinstance(error, ClosedError):
            self.seen["closed"] += 1
        else:
            super().note(x, error)
        self.answers.note()


class ClosedTasks(ClosedUsers, MovedTasks):
    """Tasks of one loop."""


class ClosedThread(ClosedUsers, MovedThread):
    """A thread."""


class SlowPlugin(MockPlugin):
    """Takes a while to compile, sometimes in vain, on what it says is an accelerator."""

    chance: random.Random

    def metrics(self) -> Sequence[Metric]:
        return (Metric("DEVICE_TYPE", lambda _: "discrete", "What it is."),)

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        threading.Event().wait(self.chance.random() * 0.02)
        if self.chance.random() < 0.2:
            raise NotSupportedError("out of registers")
        return super().compile_network(model, config)


def close_somehow(network: ExecutableNetwork, chance: random.Random) -> None:
    """Close as users do, and be done when the device is given back."""
    closers = [
        threading.Thread(target=network.close, kwargs={"drain": chance.random() < 0.5})
        for _ in range(chance.randrange(2))
    ]
    for closer in closers:
        closer.start()
    if chance.random() < 0.3:
        network.abort()
    assert network.close(drain=chance.random() < 0.5, timeout_s=WAIT_S)
    for closer in closers:
        closer.join(WAIT_S)
        assert not closer.is_alive()


@pytest.mark.timeout(180 + RUN_COUNT // 100)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["host", "streamed"])
@pytest.mark.parametrize(
    ("device", "config"),
    [
        ("MULTI:MOCK.0,MOCK.1,MOCK.2", {}),
        ("AUTO:MOCK.0,MOCK.1,MOCK.2", {"ENABLE_RUNTIME_FALLBACK": True}),
        ("AUTO:SLOW.1,SLOW.2,MOCK.0", {}),
    ],
    ids=["probes", "moves", "start-up"],
)
def test_networks_that_are_closed_meanwhile_settle_every_run_once(
    device: str,
    config: dict[str, Any],
    is_streamed: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    caplog.set_level(logging.CRITICAL, "aioinfer")  # kept records hold errors, and these networks
    monkeypatch.setattr(health, "SHORTEST_S", 0.0005)
    chance = random.Random(SEED)
    seen: Counter[str] = Counter()
    with ExitStack() as stack:
        threads = stack.enter_context(StreamsExecutor(StreamsConfig("MOCK", 3)))
        devices = MockDevices(3, executor=threads, is_streamed=is_streamed)
        fakes = [item.streams for item in devices.devices if item.streams is not None]
        stack.enter_context(DeviceThread(fakes, random.Random(SEED)))
        core = stack.enter_context(aioinfer.Core())
        core.register_plugin("MOCK", devices.make_plugin)

        def make_slow(handle: Any, name: str) -> MockPlugin:
            made = SlowPlugin(handle, name, devices.devices)
            made.chance = random.Random(SEED)
            return made

        core.register_plugin("SLOW", make_slow)
        for item in devices.devices:
            item.stage_fault = Dying(random.Random(chance.random()))
            item.device_fault = Dying(random.Random(chance.random()))
        for _ in range(max(1, RUN_COUNT // 8 // RUNS_OF_ONE)):
            seen += ask_and_close(core, device, config, chance)
            for item in devices.devices:
                item.loaded.clear()
        assert seen["finished"]
        assert seen["closed"]
    names = [thread.name for thread in threading.enumerate()]
    own = ("aioinfer.AUTO", "aioinfer.MULTI", "aioinfer.close")
    assert not [name for name in names if name.startswith(own)]


def ask_and_close(
    core: aioinfer.Core, device: str, config: dict[str, Any], chance: random.Random
) -> Counter[str]:
    """Have one network asked and closed meanwhile; return what its users have seen."""
    share = RUNS_OF_ONE // 4
    network = core.load_network(lookup_model(), device, config)
    answers = Answers(chance.randrange(RUNS_OF_ONE // 2))
    seeds = [chance.randrange(1 << 30) for _ in range(4)]
    users = (
        ClosedTasks(network, seeds[0]),
        ClosedTasks(network, seeds[1]),
        ClosedThread(network, seeds[2]),
        ClosedThread(network, seeds[3]),
    )
    for user in users:
        user.answers = answers

    seen = all_ask(network, users, share, partial(close_later, network, answers, chance))
    statistics = network.statistics()
    counted = sum(found.count for found in network.admission.latencies().values())
    assert seen.total() == 4 * share
    assert counted <= 4 * share
    assert seen["finished"] <= statistics.finished_request_count
    assert statistics.running_run_count == statistics.waiting_run_count == 0
    assert all(used.running_run_count == 0 for used in statistics.devices)
    assert all(part.running_run_count == 0 for part in statistics.parts)
    gone = weakref.ref(network)
    del users, user, network
    give_up_at = time.monotonic() + WAIT_S
    while gone() is not None and time.monotonic() < give_up_at:  # an alarm may be firing
        gc.collect()
        threading.Event().wait(0.001)
    assert gone() is None
    return seen


def close_later(network: ExecutableNetwork, answers: Answers, chance: random.Random) -> None:
    """Close when there were enough answers."""
    assert answers.are_enough.wait(WAIT_S)
    close_somehow(network, chance)
