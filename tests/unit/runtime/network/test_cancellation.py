"""What asyncio and trio end: timeouts, task groups and scopes around infer end the run as well."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import numpy as np
import pytest
import trio

import aioinfer
from aioinfer.testing import MockDevices
from unit.runtime.event_loops import EVERY_LOOP, Run, settle
from unit.runtime.held_runs import X, finish
from unit.runtime.models import expected

WAIT_S = 20.0  # a bound for what must happen; never slept through


class PlantedError(Exception):
    """What a sibling task fails with."""


def check_cancelled(network: aioinfer.ExecutableNetwork, held: MockDevices, count: int) -> None:
    """So many runs were cancelled, and hold their slots until the device is done; then nothing."""
    running = network.statistics().running_run_count
    assert running == held[0].held.waiting_count > 0, "the slot stays taken"
    finish(held)
    statistics = network.statistics()
    assert statistics.cancelled_request_count == count
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    assert len(network.admission._idle) == network.admission.slot_count


WHICH = pytest.mark.parametrize("which", ["network", "request"])


def infer_of(network: aioinfer.ExecutableNetwork, which: str) -> Any:
    return network.infer if which == "network" else network.create_infer_request().infer


@WHICH
async def test_asyncio_timeout_cancels_the_run(
    held: MockDevices, network: aioinfer.ExecutableNetwork, which: str
) -> None:
    infer = infer_of(network, which)
    loop = asyncio.get_running_loop()

    async def run() -> None:
        async with asyncio.timeout(WAIT_S) as timeout:
            # It comes due in the next round of the loop, when the run is on the device.
            loop.call_soon(timeout.reschedule, loop.time())
            await infer(X)

    with pytest.raises(TimeoutError):
        await run()
    check_cancelled(network, held, 1)
    async with asyncio.timeout(WAIT_S):
        task = asyncio.create_task(infer(X))
        await settle()
        finish(held)
        np.testing.assert_array_equal((await task)["y"], expected(X))


@WHICH
async def test_wait_for_cancels_the_run(
    held: MockDevices, network: aioinfer.ExecutableNetwork, which: str
) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(infer_of(network, which)(X), 1e-9)
    check_cancelled(network, held, 1)


@WHICH
async def test_a_sibling_that_fails_in_a_task_group_cancels_runs_on_the_device_and_in_the_queue(
    held: MockDevices, network: aioinfer.ExecutableNetwork, which: str
) -> None:
    async def fail() -> None:
        await settle()
        raise PlantedError

    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(infer_of(network, which)(X))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await run_all()
    assert [type(error) for error in caught.value.exceptions] == [PlantedError]
    assert network.statistics().waiting_run_count == 0, "what waited is gone"
    assert held[0].held.waiting_count == 2
    check_cancelled(network, held, 4)


async def test_a_run_that_fails_in_a_task_group_cancels_its_siblings(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(network.infer(X))
            await settle()
            held[0].held.fail(PlantedError())

    with pytest.raises(ExceptionGroup) as caught:
        await run_all()
    assert [type(error) for error in caught.value.exceptions] == [PlantedError]
    check_cancelled(network, held, 2)


@EVERY_LOOP
@WHICH
def test_a_cancelled_scope_cancels_the_run(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run, which: str
) -> None:
    async def main() -> None:
        infer = infer_of(network, which)
        async with anyio.create_task_group() as group:
            group.start_soon(infer, X)
            await settle()
            group.cancel_scope.cancel()
        check_cancelled(network, held, 1)

    run(main)


@WHICH
def test_trio_move_on_cancels_the_run(
    held: MockDevices, network: aioinfer.ExecutableNetwork, which: str
) -> None:
    async def main() -> None:
        infer = infer_of(network, which)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(infer, X)
                await settle()
                scope.deadline = trio.current_time()
        assert scope.cancelled_caught
        check_cancelled(network, held, 1)

    trio.run(main)


@EVERY_LOOP
def test_a_scope_around_a_stream_ends_on_time_though_the_device_does_not(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run
) -> None:
    async def consume() -> None:
        async for _ in network.stream([X] * 9):
            raise AssertionError("the device ends nothing")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            group.cancel_scope.cancel()
        check_cancelled(network, held, 4)

    run(main)


async def test_asyncio_timeout_around_a_stream_cancels_its_runs(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    async def consume() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WAIT_S) as timeout:
            loop.call_soon(timeout.reschedule, loop.time())
            async for _ in network.stream([X] * 9):
                raise AssertionError("the device ends nothing")

    with pytest.raises(TimeoutError):
        await consume()
    check_cancelled(network, held, 4)
