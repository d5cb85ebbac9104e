"""Tens of thousands of requests on devices that die and come back: every one settles once.

Random arrivals, rows, priorities, deadlines, cancels, items that no device can take, stages that
fail, and devices that are lost for a while; on two event loops and from threads. Answers are those
of a single device, wherever a request has moved.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import DeadlineExceededError, DeviceError, RequestCancelledError
from aioinfer.executors import StreamsConfig, StreamsExecutor
from aioinfer.runtime.tracing.statistics import NetworkStatistics
from aioinfer.testing import DeviceThread, MockDevices
from stress.client import idle
from stress.faults import StageError
from stress.users import (
    RUN_COUNT,
    SEED,
    WAIT_S,
    LoopUsers,
    ThreadUsers,
    Users,
    all_ask,
    lookup_model,
)

DEATH_RATE = 0.004
DEAD_STAGES = 25
STATE_RUNS = RUN_COUNT // 24
SUMS = parser.parse_model(
    '<ir_version: 9, opset_import: ["": 20]> g (float[1, 2] x, float[1, 2] past) => '
    "(float[1, 2] y, float[1, 2] present) { present = Add (past, x) y = Identity (present) }"
)


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
    share = RUN_COUNT // 8
    with dying_devices(is_streamed=is_streamed) as core:
        names = f"{kind}:MOCK.0,MOCK.1,MOCK.2"
        network = core.load_network(lookup_model(), names, config)
        users = users_of(network)
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


@pytest.mark.timeout(180 + RUN_COUNT // 100)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["host", "streamed"])
@pytest.mark.parametrize("outer", ["MULTI:BATCH:MOCK.0(8),MOCK.1,MOCK.2", "BATCH:MULTI(8)"])
def test_requests_settle_once_where_dying_devices_nest(outer: str, is_streamed: bool) -> None:
    """A shared run that loses its device moves whole, or its requests do one by one."""
    print(f"\nAIOINFER_STRESS_RUNS={RUN_COUNT} AIOINFER_STRESS_SEED={SEED}")
    share = RUN_COUNT // 8
    with dying_devices(is_streamed=is_streamed) as core:
        listed = {"MULTI": {"MULTI_DEVICE_PRIORITIES": "MOCK.0,MOCK.1,MOCK.2"}}
        config = {} if outer.startswith("MULTI") else {"DEVICE_PROPERTIES": listed}
        network = core.load_network(lookup_model(), outer, config)
        users = users_of(network)
        seen = all_ask(network, users, share)
        assert seen.total() == 4 * share
        assert seen["finished"] > share
        parts = list(everything_in(network.statistics()))
        assert max(max(part.batch_sizes, default=0) for part in parts) > 1
        assert sum(device.failure_count for part in parts for device in part.devices)
        assert sum(device.moved_run_count for part in parts for device in part.devices)
        assert network.close(timeout_s=60)
        for part in everything_in(network.statistics()):
            assert part.running_run_count == part.waiting_run_count == 0
            assert not any(device.running_run_count for device in part.devices)
        del users
        gc.collect()


@pytest.mark.timeout(120 + RUN_COUNT // 100)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["host", "streamed"])
def test_states_are_of_the_successes_alone_while_devices_die(is_streamed: bool) -> None:
    """Each request adds up what its own runs were given, whichever device they have moved to."""
    with dying_devices(is_streamed=is_streamed) as core:
        config = {"STATE": {"past": "present"}}
        network = core.load_network(SUMS, "MULTI:MOCK.0,MOCK.1,MOCK.2", config)
        failures: list[BaseException] = []

        def use(number: int) -> None:
            try:
                counted.append(add_up(network.create_infer_request(), random.Random(number)))
            except BaseException as error:
                failures.append(error)

        counted: list[int] = []
        threads = [threading.Thread(target=use, args=(SEED + number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100 + RUN_COUNT // 100)
            assert not thread.is_alive(), f"{network!r}: {network.statistics()}"
        assert failures == []
        assert all(count > STATE_RUNS // 4 for count in counted)
        assert sum(device.moved_run_count for device in network.statistics().devices)
        assert network.close(timeout_s=60)


def add_up(request: aioinfer.InferRequest, chance: random.Random) -> int:
    """Run a request with state, some of whose runs end early; return how many have succeeded."""
    total, count = np.zeros((1, 2), np.float32), 0
    for _ in range(STATE_RUNS):
        x = np.full((1, 2), chance.randrange(8), np.float32)
        limits: dict[str, Any] = {"deadline_s": 0.0005} if chance.random() < 0.1 else {}
        request.start_async({"x": x}, **limits)
        if chance.random() < 0.1:
            request.cancel()
        try:
            assert request.wait(WAIT_S)
        except (DeviceError, RequestCancelledError, DeadlineExceededError, StageError):
            asyncio.run(idle(request))  # it was only answered
        else:
            total, count = total + x, count + 1
            np.testing.assert_array_equal(request.results["y"], total)
        (state,) = request.query_state()
        np.testing.assert_array_equal(state.state, total)
    return count


@contextmanager
def dying_devices(*, is_streamed: bool) -> Iterator[aioinfer.Core]:
    """Give a core with three mock devices that are lost now and then, and come back."""
    chance = random.Random(SEED)
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
        yield core


def users_of(
    network: aioinfer.ExecutableNetwork,
) -> tuple[MovedTasks, MovedTasks, MovedThread, MovedThread]:
    return (
        MovedTasks(network, SEED + 1),
        MovedTasks(network, SEED + 2),
        MovedThread(network, SEED + 3),
        MovedThread(network, SEED + 4),
    )


def everything_in(statistics: NetworkStatistics) -> Iterator[NetworkStatistics]:
    """List a network's numbers and those of all that it is made of."""
    yield statistics
    for part in statistics.parts:
        yield from everything_in(part)
