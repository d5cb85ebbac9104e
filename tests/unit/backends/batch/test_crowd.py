"""Awaited calls that wait while the device is busy, on devices that wait for the test."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.batch.bundle import Bundle
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.backends.batch.member import BatchMember
from aioinfer.errors import ClosedError, DeviceError, TensorError
from aioinfer.runtime.loops.inline_turn import threads
from aioinfer.testing import MockDevices
from pending_tasks import expect_pending
from unit.backends.batch.test_executable_network import LOOKUP, batches, load, row


async def settle() -> None:
    """Run all tasks as far as they get."""
    for _ in range(6):
        await asyncio.sleep(0)


def call(network: aioinfer.ExecutableNetwork, *inputs: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(network.infer(given)) for given in inputs]


async def answers(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)


def outcomes(network: aioinfer.ExecutableNetwork) -> dict[str, int]:
    return {name: found.count for name, found in network.admission.latencies().items()}


async def test_calls_that_wait_are_one_run_and_each_gets_its_rows(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    inputs = [row(number - 2, count=count) for number, count in enumerate((1, 1, 2, 1, 3))]
    tasks = call(network, *inputs)
    await settle()
    assert network.admission.run_count == 3  # the first, the four rows that fit, the last
    while mock[0].held.waiting_count:
        mock[0].held.release()
    for given, outputs in zip(inputs, await answers(tasks), strict=True):
        np.testing.assert_array_equal(outputs["y"], np.maximum(given, 0))
    assert batches(network) == {1: 1, 3: 1, 4: 1}
    assert outcomes(network) == {"finished": 5}
    statistics = network.statistics()
    assert statistics.batch_sizes == {1: 3, 2: 1, 3: 1}
    assert statistics.group_sizes == {1: 2, 3: 1}
    assert statistics.slot_wait.count == 5
    assert sorted(len(span.members) for span in network.trace()) == [0, 0, 3]


async def test_who_is_cancelled_while_waiting_takes_no_rows(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    tasks = call(network, row(1), row(2), row(3), row(4))
    await settle()
    tasks[1].cancel()  # the first of its bundle
    tasks[2].cancel()
    await settle()
    tasks += call(network, row(5, count=2))
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
    first, gone, also_gone, stays, late = await answers(tasks)
    assert isinstance(gone, asyncio.CancelledError)
    assert isinstance(also_gone, asyncio.CancelledError)
    for outputs, number in ((first, 1), (stays, 4), (late, 5)):
        np.testing.assert_array_equal(outputs["y"], row(number, count=len(outputs["y"])))
    assert batches(network) == {1: 1, 3: 1}
    assert outcomes(network) == {"finished": 3, "cancelled": 2}
    assert network.statistics().batch_sizes == {1: 4, 2: 1}


async def test_if_all_are_cancelled_the_device_never_sees_them(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    for task in tasks[1:]:
        task.cancel()
    await settle()
    assert network.admission.run_count == 1
    mock[0].held.release()
    await answers(tasks)
    assert batches(network) == {1: 1}
    assert outcomes(network) == {"finished": 1, "cancelled": 2}
    assert network.statistics().batch_sizes == {1: 3}


async def test_who_is_cancelled_in_a_run_disturbs_nobody_and_the_last_stops_it(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    computed: list[str] = []
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    mock[0].held.release()
    tasks[1].cancel()
    await settle()
    mock[0].held.release()
    _first, _gone, stays = await answers(tasks)
    np.testing.assert_array_equal(stays["y"], row(3))
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    mock[0].held.release()
    mock[0].stage_fault = lambda stage: computed.append(stage)
    for task in tasks[1:]:
        task.cancel()
    await settle()
    mock[0].held.release()
    await answers(tasks)
    assert computed == []
    assert network.admission.run_count == 0


async def test_one_bad_item_fails_alone(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, LOOKUP)
    inputs = [np.array([[index]], np.int64) for index in (1, 2, 99, 3)]
    for _ in range(2):  # the round after an error is clean
        tasks = call(network, *inputs)
        await settle()
        while mock[0].held.waiting_count:
            mock[0].held.release()
            await settle()
        for index, found in zip((1, 2, 99, 3), await answers(tasks), strict=True):
            if index == 99:
                assert isinstance(found, TensorError)
                assert "run together with 2 other requests" in found.__notes__[-1]
            else:
                assert found["y"] == 10 * index
    assert outcomes(network) == {"finished": 6, "failed": 2}


async def test_who_is_cancelled_is_not_retried(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, LOOKUP)
    tasks = call(network, *[np.array([[index]], np.int64) for index in (1, 2, 99, 3)])
    await settle()
    mock[0].held.release()
    tasks[1].cancel()
    await settle()
    mock[0].held.release()
    await settle()
    assert mock[0].held.waiting_count == 2
    mock[0].held.release(2)
    await answers(tasks)
    assert batches(network) == {1: 3, 3: 1}


async def test_each_caller_gets_an_exception_of_its_own_with_the_common_cause(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    network.abort()
    while mock[0].held.waiting_count:
        mock[0].held.release()
    first, second, third = await answers(tasks)
    assert all(isinstance(found, ClosedError) for found in (first, second, third))
    assert second is not third
    assert second.__cause__ is third.__cause__
    assert outcomes(network) == {"aborted": 3}


async def test_a_device_that_is_lost_answers_everybody(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)

    def lose(stage: str) -> None:
        raise DeviceError("the device is lost")

    tasks = call(network, *[row(number) for number in range(10)])
    await settle()
    mock[0].stage_fault = lose
    while mock[0].held.waiting_count:
        mock[0].held.release()
        await settle()
    found = await answers(tasks)
    assert all(isinstance(error, DeviceError) for error in found)
    assert len(set(map(id, found))) == 10
    assert network.admission.run_count == 0
    mock[0].stage_fault = None
    (task,) = call(network, row(1))
    await settle()
    mock[0].held.release()
    np.testing.assert_array_equal((await task)["y"], row(1))


def test_a_loop_that_is_closed_loses_its_answers_and_no_slot(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)

    async def leave_behind() -> None:
        call(network, row(1), row(2), row(3))
        await settle()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_behind())
    expect_pending(asyncio.all_tasks(loop))
    loop.close()
    while mock[0].held.waiting_count:
        mock[0].held.release()
    assert network.admission.run_count == 0

    async def ask() -> None:
        (task,) = call(network, row(4))
        await settle()
        mock[0].held.release()
        np.testing.assert_array_equal((await task)["y"], row(4))

    asyncio.run(ask())


def test_calls_of_different_loops_share_a_run(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    found: dict[int, Any] = {}
    joined, released = threading.Barrier(3), threading.Event()

    async def ask(number: int) -> None:
        tasks = call(network, row(number), row(number + 10))
        await settle()
        joined.wait(20)
        await asyncio.to_thread(released.wait, 20)
        found[number] = await answers(tasks)

    async def hold() -> None:
        (first,) = call(network, row(0))
        await settle()
        threads = [threading.Thread(target=asyncio.run, args=(ask(n),)) for n in (1, 2)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(joined.wait, 20)
        while mock[0].held.waiting_count:
            mock[0].held.release()
        released.set()
        for thread in threads:
            await asyncio.to_thread(thread.join, 20)
        await first

    asyncio.run(hold())
    for number in (1, 2):
        for outputs, value in zip(found[number], (number, number + 10), strict=True):
            np.testing.assert_array_equal(outputs["y"], row(value))
    assert batches(network) == {1: 1, 4: 1}


async def test_what_was_answered_is_freed_without_the_collector(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    gc.collect()
    gc.disable()
    try:
        tasks = call(network, row(1), row(2), row(3))
        await settle()
        bundles = [run.bindings.shared for run in network.admission.runs if run.bindings.shared]
        gone = [weakref.ref(thing) for one in bundles for thing in (one, one.run)]
        assert gone
        del bundles
        mock[0].held.release(2)
        await answers(tasks)
        del tasks
        await settle()
        assert [ref() for ref in gone] == [None] * len(gone)
    finally:
        gc.enable()


async def test_with_a_timeout_calls_wait_for_more_at_an_idle_device(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, AUTO_BATCH_TIMEOUT=60_000)
    tasks = call(network, *[row(number) for number in range(4)])
    await settle()
    assert mock[0].held.waiting_count == 1
    mock[0].held.release()
    await answers(tasks)
    assert batches(network) == {4: 1}


async def test_wrong_inputs_are_refused_as_ever(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core)
    tasks = call(network, row(1), np.zeros((1, 2, 3), np.float32), "no array")
    await settle()
    mock[0].held.release()
    first, *wrong = await answers(tasks)
    assert all(isinstance(error, TensorError) for error in wrong)
    np.testing.assert_array_equal(first["y"], row(1))


async def test_a_deadline_and_a_priority_have_runs_of_their_own(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    assert network.admission.run_count == 2
    tasks.append(asyncio.ensure_future(network.infer(row(4), priority=1)))
    await settle()
    assert network.admission.run_count == 3
    mock[0].held.release()
    tasks.append(asyncio.ensure_future(network.infer(row(5), deadline_s=60)))
    await settle()
    assert network.admission.run_count == 3
    while mock[0].held.waiting_count:
        mock[0].held.release()
    for number, outputs in enumerate(await answers(tasks), start=1):
        np.testing.assert_array_equal(outputs["y"], row(number))


async def test_a_retry_is_told_by_its_own_request(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, LOOKUP)
    tasks = call(network, *[np.array([[index]], np.int64) for index in (1, 2, 99, 3)])
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
        await settle()
    await answers(tasks)
    assert isinstance(network, BatchNetwork)
    spans = network.compiled.trace()
    assert len({span.run_id for span in spans}) == 4


async def test_outputs_without_rows_are_copied_elsewhere_if_they_are_large(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(
        core,
        '<ir_version: 9, opset_import: ["": 20]> g '
        "(float[batch, 2] x) => (float[batch, 2] y, float[50000] table) "
        "<int64[1] count = {50000}> { y = Relu (x) table = ConstantOfShape (count) }",
    )
    sizes: list[int] = []
    assert isinstance(network, BatchNetwork)
    plain = network.copier

    def copier(size_bytes: int) -> Any:
        sizes.append(size_bytes)
        return plain(size_bytes)

    assert isinstance(network, BatchNetwork)
    network.copier = copier
    inputs = [row(number) for number in (1, 2, 3, 4)]
    tasks = call(network, *inputs)
    await settle()
    mock[0].held.release()
    await settle()
    mock[0].held.release()
    found = await answers(tasks)
    assert sizes == [3 * 2 * 4, 2 * 50_000 * 4]  # joined, then split
    for given, outputs in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(outputs["y"], given)
        assert not outputs["table"].any()
        outputs["table"][:] = 1  # each one's own


async def test_a_call_that_comes_amid_an_abort_joins_nothing_that_was_answered(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_answered, has_joined = threading.Event(), threading.Event()
    on_stop = BatchMember.on_stop

    def on_stop_late(member: BatchMember) -> None:
        if member.bundle is not None:
            was_answered.set()
            assert has_joined.wait(20)
        on_stop(member)

    monkeypatch.setattr(BatchMember, "on_stop", on_stop_late)
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    aborting = threading.Thread(target=network.abort)
    check_inputs = network.check_inputs

    def check_inputs_during_an_abort(given: Any) -> Any:
        if not was_answered.is_set():
            aborting.start()
            assert was_answered.wait(20)
        return check_inputs(given)

    monkeypatch.setattr(network, "check_inputs", check_inputs_during_an_abort)
    tasks += call(network, row(4))
    await settle()
    has_joined.set()
    aborting.join(20)
    mock[0].held.release()
    told = await answers(tasks)
    assert [type(error) for error in told] == [ClosedError] * 4
    assert outcomes(network) == {"aborted": 4}
    assert network.statistics().batch_sizes == {1: 4}


async def test_no_call_joins_a_run_that_the_last_of_its_calls_has_stopped(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load(core)
    parts: list[Any] = []
    on_stop = BatchMember.on_stop

    def join_and_stop(member: BatchMember) -> None:
        assert network.shared_route is not None
        parts.append(network.shared_route.join(row(3), threads.turn))
        on_stop(member)

    monkeypatch.setattr(BatchMember, "on_stop", join_and_stop)
    tasks = call(network, row(1), row(2))
    await settle()
    tasks[1].cancel()
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
    (part,) = parts
    await asyncio.wait_for(part.future, 20)
    np.testing.assert_array_equal(part.results()["y"], row(3))
    await answers(tasks)
    assert outcomes(network) == {"finished": 2, "cancelled": 1}
    assert network.statistics().batch_sizes == {1: 3}


async def test_a_run_that_ends_amid_an_abort_leaves_its_calls_to_be_answered(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Bundle._answer

    def end_and_answer(bundle: Bundle) -> None:
        while mock[0].held.waiting_count:
            mock[0].held.release()
        answer(bundle)

    monkeypatch.setattr(Bundle, "_answer", end_and_answer)
    network = load(core)
    tasks = call(network, row(1), row(2), row(3))
    await settle()
    mock[0].held.release()
    assert mock[0].held.waiting_count == 1
    network.abort()
    told = await answers(tasks[1:])
    assert [type(error) for error in told] == [ClosedError] * 2
    await answers(tasks)
    assert outcomes(network) == {"finished": 1, "aborted": 2}


async def test_a_run_that_is_stopped_on_its_way_to_its_place_may_still_be_taken_there(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load(core)
    assert isinstance(network, BatchNetwork)
    take_up, on_stop = BatchMember._take_up, BatchMember.on_stop

    def stop_and_take_up(member: BatchMember) -> None:
        if member.bindings.shared is not None:
            member.stop.set(ClosedError("planted"))
        take_up(member)

    def take_and_drop(member: BatchMember) -> None:
        if member in network.collector.waiting:
            network._begin(network._take_group())
        on_stop(member)

    monkeypatch.setattr(BatchMember, "_take_up", stop_and_take_up)
    monkeypatch.setattr(BatchMember, "on_stop", take_and_drop)
    tasks = call(network, row(1), row(2))
    await settle()
    while mock[0].held.waiting_count:
        mock[0].held.release()
    first, stopped = await answers(tasks)
    np.testing.assert_array_equal(first["y"], row(1))
    assert isinstance(stopped, ClosedError)
    assert (network.run_count, network.admission.run_count) == (0, 0)
    assert outcomes(network) == {"finished": 1, "aborted": 1}
