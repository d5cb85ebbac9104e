"""Tens of thousands of requests on devices that die and come back: every one settles once.

Random arrivals, rows, priorities, deadlines, cancels, items that no device can take, stages that
fail, and devices that are lost for a while; on two event loops and from threads. Answers are those
of a single device, wherever a request has moved.
"""

from __future__ import annotations

import gc
import random
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import DeviceError
from aioinfer.executors import StreamsConfig, StreamsExecutor
from aioinfer.testing import DeviceThread, MockDevices
from stress.faults import StageError
from stress.users import (
    RUN_COUNT,
    SEED,
    LoopUsers,
    ThreadUsers,
    Users,
    all_ask,
    lookup_model,
)

DEATH_RATE = 0.004
DEAD_STAGES = 25


class Dying:
    """One stage in a hundred fails, and now and then the device is lost for the next ones."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._left = 0

    def __call__(self, stage: str) -> BaseException | None:
        number = self._chance.random()
        if self._left > 0:
            self._left -= 1
            return DeviceError(f"lost in stage {stage!r}")
        if number < DEATH_RATE:
            self._left = DEAD_STAGES
        return StageError(f"planted in stage {stage!r}") if number > 0.99 else None


def note_lost(user: Users, x: np.ndarray[Any, Any], error: BaseException) -> bool:
    if not isinstance(error, DeviceError):
        return False
    assert x is not None
    user.seen["lost"] += 1
    return True


class MovedTasks(LoopUsers):
    """Tasks that may be told that all devices were lost."""

    def note(self, x: np.ndarray[Any, Any], error: BaseException) -> None:
        if not note_lost(self, x, error):
            super().note(x, error)


class MovedThread(ThreadUsers):
    """A thread that may be told that all devices were lost."""

    def note(self, x: np.ndarray[Any, Any], error: BaseException) -> None:
        if not note_lost(self, x, error):
            super().note(x, error)


@pytest.mark.timeout(180 + RUN_COUNT // 100)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["host", "streamed"])
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("MULTI", {}),
        ("MULTI", {"SCHEDULE_POLICY": "ROUND_ROBIN"}),
        ("AUTO", {"ENABLE_RUNTIME_FALLBACK": True}),
    ],
    ids=["earliest", "in-turn", "auto"],
)
def test_requests_settle_once_while_devices_die_and_come_back(
    kind: str, config: dict[str, Any], is_streamed: bool
) -> None:
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    chance = random.Random(SEED)
    share = RUN_COUNT // 8
    with ExitStack() as stack:
        threads = stack.enter_context(StreamsExecutor(StreamsConfig("MOCK", 3)))
        devices = MockDevices(3, executor=threads, is_streamed=is_streamed)
        fakes = [device.streams for device in devices.devices if device.streams is not None]
        stack.enter_context(DeviceThread(fakes, random.Random(SEED)))
        core = stack.enter_context(aioinfer.Core())
        core.register_plugin("MOCK", devices.make_plugin)
        for device in devices.devices:
            device.stage_fault = Dying(random.Random(chance.random()))
            device.device_fault = Dying(random.Random(chance.random()))
        names = f"{kind}:MOCK.0,MOCK.1,MOCK.2"
        network = core.load_network(lookup_model(), names, config)
        users = (
            MovedTasks(network, SEED + 1),
            MovedTasks(network, SEED + 2),
            MovedThread(network, SEED + 3),
            MovedThread(network, SEED + 4),
        )
        seen = all_ask(network, users, share)
        statistics = network.statistics()
        assert seen.total() == 4 * share
        assert statistics.running_run_count == statistics.waiting_run_count == 0
        assert [device.running_run_count for device in statistics.devices] == [0, 0, 0]
        counted = sum(found.count for found in network.admission.latencies().values())
        assert counted <= 4 * share  # a call that is cancelled before it begins is none
        moved = sum(device.moved_run_count for device in statistics.devices)
        assert sum(device.run_count for device in statistics.devices) <= counted + moved
        assert moved
        assert sum(device.failure_count for device in statistics.devices)
        assert seen["finished"] > share
        assert network.close(timeout_s=60)
        del users
        gc.collect()
