"""Requests that do not fit the rule, around which others share runs: each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing
from onnx import parser

import aioinfer
from aioinfer.errors import ClosedError
from aioinfer.testing import MockDevices
from unit.backends.batch.test_crowd import answers, call, settle
from unit.backends.batch.test_executable_network import RELU, batches, check, load, row, start


def drain(mock: MockDevices) -> None:
    while mock[0].held.waiting_count:
        mock[0].held.release()


async def test_no_rows_and_more_rows_than_fit_go_alone(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    inputs = [row(1), row(2), row(0, count=0), row(3, count=9), row(4, count=4), row(5)]
    tasks = call(network, *inputs)
    await settle()
    drain(mock)
    for given, outputs in zip(inputs, await answers(tasks), strict=True):
        np.testing.assert_array_equal(outputs["y"], given)
    found = batches(network)
    assert (found[0], found[4], found[9]) == (1, 1, 1)
    assert sum(size * count for size, count in found.items()) == 16


async def test_arrays_of_another_order_or_kind_are_joined_by_what_they_hold(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    inputs = [row(1), whole[:2, ::3], np.asfortranarray(whole[:2, :2]), whole[::-2, 4:]]
    tasks = call(network, *inputs)
    await settle()
    drain(mock)
    for given, outputs in zip(inputs, await answers(tasks), strict=True):
        np.testing.assert_array_equal(outputs["y"], given)


@pytest.mark.parametrize("streams", [0, 1])
async def test_functions_of_the_user_are_called_once_for_each_call(
    core: aioinfer.Core, mock: MockDevices, streams: int
) -> None:
    calls: list[str] = []

    def before(given: dict[str, Any]) -> dict[str, Any]:
        calls.append("before")
        return {"x": row(given["number"])}

    def after(outputs: dict[str, Any]) -> float:
        calls.append("after")
        return float(outputs["y"][0, 0])

    config = {"PREPROCESS_STREAMS": streams, "POSTPROCESS_STREAMS": streams}
    network = core.load_network(
        parser.parse_model(RELU), "BATCH:MOCK(4)", config, preprocess=before, postprocess=after
    )
    tasks = [asyncio.ensure_future(network.infer({"number": number})) for number in range(4)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.001)
        drain(mock)
    assert await answers(tasks) == [0.0, 1.0, 2.0, 3.0]
    assert sorted(calls) == ["after"] * 4 + ["before"] * 4


def test_tasks_of_trio_share_runs_too(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    found: dict[int, Any] = {}

    async def ask(number: int) -> None:
        found[number] = await network.infer(row(number))

    async def ask_all() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(ask, number)
                await trio.testing.wait_all_tasks_blocked()
                drain(mock)

    trio.run(ask_all)
    for number, outputs in found.items():
        np.testing.assert_array_equal(outputs["y"], row(number))
    assert batches(network) == {1: 1, 4: 1}


async def test_an_answer_is_written_to_by_nobody_else(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    drain(mock)
    _first, second, third = await answers(tasks)
    second["y"][:] = 7
    np.testing.assert_array_equal(third["y"], row(3))
    for _ in range(3):
        tasks = call(network, row(4), row(5), row(6))
        await settle()
        drain(mock)
        await answers(tasks)
    np.testing.assert_array_equal(third["y"], row(3))
    np.testing.assert_array_equal(second["y"], row(7))


async def test_what_a_caller_changes_after_the_answer_changes_nothing(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    inputs = [row(1), row(2), row(3)]
    tasks = call(network, *inputs)
    await settle()
    drain(mock)
    found = await answers(tasks)
    for given in inputs:
        given[:] = 9
    for number, outputs in enumerate(found, start=1):
        np.testing.assert_array_equal(outputs["y"], row(number))


async def test_outputs_that_callers_give_are_written_beside_bundles(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    memory = np.zeros((1, 2), np.float32)
    tasks = call(network, row(1), row(2))
    await settle()
    bound = asyncio.ensure_future(network.infer(row(3), {"y": memory}))
    await settle()
    drain(mock)
    await answers(tasks)
    assert (await bound)["y"] is memory
    np.testing.assert_array_equal(memory, row(3))
    assert batches(network) == {1: 1, 2: 1}


async def test_close_while_calls_wait_lets_them_end(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    closing = asyncio.ensure_future(network.aclose())
    while not network.admission.is_closed:
        await settle()
    (late,) = call(network, row(4))
    with pytest.raises(ClosedError):
        await late
    while not closing.done():
        drain(mock)
        await asyncio.sleep(0.001)
    for number, outputs in enumerate(await answers(tasks), start=1):
        np.testing.assert_array_equal(outputs["y"], row(number))


def test_requests_of_threads_and_calls_of_tasks_share_runs(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    requests = start(network, row(1), row(2))

    async def ask() -> None:
        tasks = call(network, row(3), row(4))
        await settle()
        drain(mock)
        for number, outputs in enumerate(await answers(tasks), start=3):
            np.testing.assert_array_equal(outputs["y"], row(number))

    asyncio.run(ask())
    check(requests, row(1), row(2))
    assert batches(network) == {1: 1, 3: 1}
