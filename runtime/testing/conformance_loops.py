"""How a network serves event loops: asyncio, uvloop and trio, one loop and several at once."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from unittest import SkipTest

import numpy as np

from ...errors import DeadlineExceededError
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import sample_named

if TYPE_CHECKING:
    from ..devices.core import Core
    from ..network.executable_network import ExecutableNetwork

DOUBLED = sample_named("doubled")
TASK_COUNT = 300


def _x(number: int) -> np.ndarray:
    return np.full((1 + number % 3, 3), number - TASK_COUNT / 2, np.float32)


def _check(number: int, outputs: dict[str, np.ndarray]) -> None:
    x = _x(number)
    expect_equal(outputs["y"], np.maximum(x, 0) + x, f"output 'y' of task {number}")


async def _many_tasks(network: ExecutableNetwork) -> None:
    async def one(number: int) -> None:
        _check(number, await network.infer({"x": _x(number)}))

    await asyncio.gather(*(one(number) for number in range(TASK_COUNT)))


@behaviour
def _hundreds_of_tasks_share_a_network(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        asyncio.run(_many_tasks(network))
        statistics = network.statistics()
        expect(statistics.finished_request_count == TASK_COUNT, "every request is counted")
        expect(statistics.waiting_run_count == 0, "no run waits when all is over")


@behaviour
def _hundreds_of_tasks_with_requests_of_their_own(core: Core, device: str) -> None:
    async def one(number: int) -> None:
        request = network.create_infer_request()
        for _ in range(2):
            _check(number, await request.infer({"x": _x(number)}))
        request.start_async({"x": _x(number)})
        expect(await request.wait_async() is True, "wait_async() is True when the run has ended")
        _check(number, request.results)

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(TASK_COUNT // 3)))

    with load(core, device, DOUBLED) as network:
        asyncio.run(all_of_them())


@behaviour
def _uvloop_serves_as_well(core: Core, device: str) -> None:
    try:
        import uvloop
    except ImportError:
        raise SkipTest("uvloop is not installed") from None
    with (
        load(core, device, DOUBLED) as network,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_many_tasks(network))


@behaviour
def _trio_serves_as_well(core: Core, device: str) -> None:
    try:
        import trio
    except ImportError:
        raise SkipTest("trio is not installed") from None

    async def one(number: int) -> None:
        _check(number, await network.infer({"x": _x(number)}))

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(TASK_COUNT):
                nursery.start_soon(one, number)

    with load(core, device, DOUBLED) as network:
        trio.run(all_of_them)


@behaviour
def _several_loops_and_a_plain_thread_share_a_network(core: Core, device: str) -> None:
    def turn_a_loop() -> None:
        asyncio.run(_many_tasks(network))

    def block() -> None:
        for number in range(20):
            _check(number, network.create_infer_request().infer_sync({"x": _x(number)}))

    with load(core, device, DOUBLED) as network, ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(call) for call in (turn_a_loop, turn_a_loop, block, block)]:
            done.result()


@behaviour
def _cancelled_tasks_cancel_their_runs_and_disturb_nobody(core: Core, device: str) -> None:
    chance = random.Random(7)

    async def all_of_them() -> None:
        tasks = [
            asyncio.create_task(network.infer({"x": _x(number)})) for number in range(TASK_COUNT)
        ]
        await asyncio.sleep(0)  # all of them start
        for task in chance.sample(tasks, k=TASK_COUNT // 2):
            task.cancel()
        for number, outcome in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
            if not isinstance(outcome, asyncio.CancelledError):
                if isinstance(outcome, BaseException):
                    raise outcome
                _check(number, outcome)

    network = load(core, device, DOUBLED)
    with network:
        asyncio.run(all_of_them())
    statistics = network.statistics()
    settled = statistics.finished_request_count + statistics.cancelled_request_count
    expect(settled == TASK_COUNT, f"every run is counted once: {statistics}")


@behaviour
def _a_deadline_is_kept_on_a_loop(core: Core, device: str) -> None:
    async def late() -> None:
        await network.infer({"x": _x(1)}, deadline_s=0.0)

    with load(core, device, DOUBLED) as network:
        expect_error(DeadlineExceededError, lambda: asyncio.run(late()), "deadline_s=0")
        asyncio.run(_many_tasks(network))
