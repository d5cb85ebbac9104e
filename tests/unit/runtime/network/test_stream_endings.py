"""How streams end: errors at their turn, closing early, cancellation anywhere; nothing is left."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import numpy as np
import pytest
import trio

import aioinfer
from aioinfer.errors import ClosedError, RequestCancelledError, TensorError
from aioinfer.runtime.loops import side_task
from aioinfer.testing import MockDevices
from unit.runtime.event_loops import EVERY_LOOP, Main, Run, finish, on_asyncio, settle
from unit.runtime.held_runs import X
from unit.runtime.models import expected

BAD = np.zeros((1, 7), np.float32)  # the network takes rows of three
KINDS = ["list", "sync", "async"]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


class PlantedError(Exception):
    """What the test makes go wrong."""


class AbruptError(BaseException):
    """What a device raises that is no Exception."""


class Source:
    """Gives its items, or raises them; knows whether it was begun, and whether it was closed."""

    def __init__(self, items: list[Any], kind: str) -> None:
        self._items, self._kind = items, kind
        self.has_begun = self.is_over = False
        self.pulled = 0

    def _sync(self) -> Iterator[Any]:
        self.has_begun = True
        try:
            for item in self._items:
                self.pulled += 1
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.is_over = True

    async def _async(self) -> AsyncIterator[Any]:
        self.has_begun = True
        try:
            for item in self._items:
                await settle(1)
                self.pulled += 1
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            try:
                await settle(1)
            finally:  # trio ends that wait, too, if the source is cancelled
                self.is_over = True

    def open(self) -> Any:
        if self._kind == "list":
            return self._items
        return self._sync() if self._kind == "sync" else self._async()

    def check_closed(self) -> None:
        assert self.is_over == self.has_begun


def check_nothing_left(network: aioinfer.ExecutableNetwork) -> None:
    admission = network.admission
    assert (admission.run_count, admission.waiting_count) == (0, 0)
    assert len(admission._idle) == admission.slot_count
    assert len(admission.runs) == 0
    assert not side_task._running


def beside(consume: Main, held: MockDevices) -> Main:
    """Return what consumes while the device ends all that it gets."""

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await finish(held)

    return main


async def read(stream: AsyncIterator[Any], got: list[Any]) -> None:
    async for results in stream:
        got.append(results)


@EVERY_LOOP
@EVERY_KIND
@pytest.mark.parametrize("is_ordered", [True, False])
def test_an_item_that_cannot_start_raises_at_its_turn(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run, kind: str, is_ordered: bool
) -> None:
    source = Source([X, X + 1, BAD, X + 3], kind)
    got: list[Any] = []

    async def consume() -> None:
        stream = network.stream(source.open(), is_ordered, look_ahead=9)
        with pytest.raises(TensorError) as caught:
            await read(stream, got)
        assert caught.value.__notes__ == ["in item 2 of a stream over network 'tiny'"]
        check_nothing_left(network)

    run(beside(consume, held))
    source.check_closed()
    if is_ordered:
        results = [outputs["y"] for outputs in got]
        np.testing.assert_array_equal(results, [expected(X), expected(X + 1)])
        assert source.pulled in (0, 3), "nobody would see what comes after the bad one"
    else:
        assert got == [], "it was the first to be over"


@EVERY_LOOP
@EVERY_KIND
@pytest.mark.parametrize("failure", [PlantedError, AbruptError])
def test_an_item_that_fails_raises_and_the_others_are_cancelled_and_waited_for(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    run: Run,
    kind: str,
    failure: type[BaseException],
) -> None:
    source = Source([X + number for number in range(9)], kind)
    caught: list[BaseException] = []

    async def consume() -> None:
        try:
            async for _ in network.stream(source.open(), look_ahead=4):
                raise AssertionError("the first one fails")
        except failure as error:
            caught.append(error)
            check_nothing_left(network)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            held[0].held.fail(failure("planted"))
            await settle()
            assert caught == [], "it waits for the two that are on the device"
            held[0].held.release(2)
            assert held[0].held.waiting_count == 0, "the fourth never gets there"

    run(main)
    assert caught[0].__notes__ == ["in item 0 of a stream over network 'tiny'"]
    source.check_closed()
    statistics = network.statistics()
    assert (statistics.failed_request_count, statistics.cancelled_request_count) == (1, 3)


async def test_errors_of_items_that_nobody_gets_to_see_go_without_a_word(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what other tests have left may have something to say
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "aioinfer"):
        stream = network.stream([X, X, X])
        task = asyncio.create_task(anext(stream))
        await settle()
        held[0].held.fail(PlantedError("first"))
        held[0].held.fail(PlantedError("second"))
        await finish(held)
        with pytest.raises(PlantedError, match="first"):
            await task
        del task, stream
        gc.collect()
    assert caplog.text == ""


@EVERY_LOOP
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("is_ordered", [True, False])
def test_what_the_source_raises_comes_after_the_results_of_what_it_gave(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run, kind: str, is_ordered: bool
) -> None:
    source = Source([X, X + 1, PlantedError("dry")], kind)
    got: list[Any] = []

    async def consume() -> None:
        with pytest.raises(PlantedError, match="dry"):
            await read(network.stream(source.open(), is_ordered), got)

    run(beside(consume, held))
    assert len(got) == 2
    check_nothing_left(network)


@EVERY_LOOP
@EVERY_KIND
@pytest.mark.parametrize("is_ordered", [True, False])
def test_closing_early_cancels_the_runs_closes_the_source_and_waits(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run, kind: str, is_ordered: bool
) -> None:
    source = Source([X + number for number in range(9)], kind)
    has_left = False

    async def consume() -> None:
        nonlocal has_left
        async with aclosing(network.stream(source.open(), is_ordered)) as stream:
            async for _ in stream:
                break
        has_left = True
        check_nothing_left(network)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            held[0].held.release()
            await settle()
            assert not has_left, "a run is still on the device"
            held[0].held.release(held[0].held.waiting_count)

    run(main)
    assert has_left
    source.check_closed()
    assert network.statistics().cancelled_request_count >= 1


@EVERY_KIND
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_stream_that_is_only_dropped_is_closed_by_its_loop(
    held: MockDevices, network: aioinfer.ExecutableNetwork, kind: str, loop: str
) -> None:
    source = Source([X + number for number in range(9)], kind)

    async def consume() -> None:
        async for _ in network.stream(source.open()):
            break

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            held[0].held.release()
        await finish(held)
        check_nothing_left(network)

    if loop == "asyncio":
        on_asyncio(main)
        source.check_closed()
    else:
        with pytest.warns(ResourceWarning, match="garbage collected before it had been exhausted"):
            trio.run(main)


def test_a_stream_that_nobody_reads_pulls_nothing(network: aioinfer.ExecutableNetwork) -> None:
    sources = [Source([X], kind) for kind in KINDS]

    async def main() -> None:
        for source in sources:
            await network.stream(source.open()).aclose()
            network.stream(source.open())

    on_asyncio(main)
    assert not any(source.has_begun for source in sources)
    check_nothing_left(network)


async def work(held: MockDevices) -> None:
    """End one run of the device every few turns, for as long as the test lasts."""
    while True:
        await settle(3)
        if held[0].held.waiting_count:
            held[0].held.release()


@EVERY_LOOP
@EVERY_KIND
@pytest.mark.parametrize("is_ordered", [True, False])
def test_cancellation_at_every_point_leaves_nothing(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run, kind: str, is_ordered: bool
) -> None:
    ended = {"cancelled": 0, "done": 0}

    async def consume(source: Source, scope: anyio.CancelScope) -> None:
        with scope:
            async with aclosing(network.stream(source.open(), is_ordered, look_ahead=3)) as stream:
                async for _ in stream:
                    await settle(1)  # a place of the consumer's own
        ended["cancelled" if scope.cancelled_caught else "done"] += 1
        source.check_closed()
        assert not side_task._running

    async def main() -> None:
        for turns in range(60):
            source, scope = Source([X + number for number in range(5)], kind), anyio.CancelScope()
            async with anyio.create_task_group() as group:
                group.start_soon(work, held)
                async with anyio.create_task_group() as consumer:
                    consumer.start_soon(consume, source, scope)
                    await settle(turns)
                    scope.cancel()
                group.cancel_scope.cancel()
            await finish(held)
            check_nothing_left(network)

    run(main)
    assert min(ended.values()) > 0, "cancelled in the middle, and too late"
    assert sum(ended.values()) == 60


@EVERY_KIND
async def test_cancelling_the_task_itself_at_every_point_leaves_nothing(
    held: MockDevices, network: aioinfer.ExecutableNetwork, kind: str
) -> None:
    async def consume(source: Source) -> None:
        async with aclosing(network.stream(source.open(), look_ahead=3)) as stream:
            async for _ in stream:
                await settle(1)

    cancelled_count = 0
    for turns in range(60):
        source = Source([X + number for number in range(5)], kind)
        device = asyncio.create_task(work(held))
        task = asyncio.create_task(consume(source))
        await settle(turns)
        task.cancel()
        await asyncio.wait([task])
        cancelled_count += task.cancelled()
        source.check_closed()
        device.cancel()
        await finish(held)
        check_nothing_left(network)
    assert 10 < cancelled_count < 60


async def test_a_cancelled_consumer_does_not_wait_for_the_device(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    async def consume() -> None:
        async for _ in network.stream([X, X]):
            raise AssertionError("the device ends nothing")

    task = asyncio.create_task(consume())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held[0].held.waiting_count == 2
    await finish(held)
    check_nothing_left(network)


@pytest.mark.parametrize("how", ["drained", "aborted"])
@EVERY_KIND
async def test_a_network_that_is_closed_meanwhile_ends_the_stream_at_an_items_turn(
    held: MockDevices, network: aioinfer.ExecutableNetwork, how: str, kind: str
) -> None:
    source, got = Source([X + number for number in range(9)], kind), []

    async def consume() -> None:
        async for outputs in network.stream(source.open(), look_ahead=3):
            got.append(outputs["y"])

    task = asyncio.create_task(consume())
    while network.admission.run_count < 3:  # a thread reads what is no async source
        await settle(1)
    closing = asyncio.create_task(network.aclose(drain=how == "drained"))
    aborted_count = 0 if how == "drained" else 3  # closed first, and then its runs are stopped
    while not network.is_closed or network.statistics().aborted_request_count < aborted_count:
        await settle(1)
    await finish(held)
    with pytest.raises(ClosedError) as caught:
        await task
    await closing
    count = 3 if how == "drained" else 0
    np.testing.assert_array_equal(got, [expected(X + number) for number in range(count)])
    assert caught.value.__notes__ == [f"in item {count} of a stream over network 'tiny'"]
    source.check_closed()
    check_nothing_left(network)


async def test_a_source_that_was_cancelled_by_somebody_else_is_not_taken_for_its_end(
    network: aioinfer.ExecutableNetwork,
) -> None:
    async def source() -> AsyncIterator[np.ndarray]:
        pulling = asyncio.current_task()
        assert pulling is not None
        pulling.cancel()
        await settle()
        yield X

    with pytest.raises(
        RequestCancelledError, match=r"reads the source of a stream .* was cancelled"
    ):
        await anext(network.stream(source()))
    check_nothing_left(network)


@EVERY_LOOP
def test_an_error_of_a_source_that_is_closed_reaches_who_closes(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run
) -> None:
    async def source() -> AsyncIterator[np.ndarray]:
        try:
            while True:
                yield X
        finally:
            raise PlantedError("on the way out")

    async def consume() -> None:
        stream = network.stream(source())
        await anext(stream)
        with pytest.raises(PlantedError, match="on the way out"):
            await stream.aclose()

    run(beside(consume, held))
    check_nothing_left(network)


async def test_a_source_whose_task_was_cancelled_before_it_began_is_closed(
    network: aioinfer.ExecutableNetwork,
) -> None:
    source = Source([X, X + 1], "async")
    items = source.open()
    await anext(items)
    consumer = asyncio.create_task(anext(network.stream(items)))
    before = asyncio.all_tasks()
    asyncio.get_running_loop().call_soon(
        lambda: [task.cancel() for task in asyncio.all_tasks() - before]
    )
    with pytest.raises(RequestCancelledError, match="reads the source of a stream"):
        await asyncio.wait_for(consumer, 20)
    source.check_closed()
    check_nothing_left(network)


def endless_source() -> Iterator[Any]:
    """Give what runs for ever, and an error when it is closed."""
    try:
        while True:
            yield X
    finally:
        raise PlantedError("on the way out")


def failing_source() -> Iterator[Any]:
    """Give what runs, what does not, and an error when it is closed."""
    try:
        yield X
        yield BAD
    finally:
        raise PlantedError("on the way out")


@EVERY_LOOP
def test_what_closing_a_sync_source_raises_hides_neither_the_items_error_nor_the_runs(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run
) -> None:
    stream = network.stream(failing_source(), False)
    ended: list[str] = []

    async def consume() -> None:
        with pytest.raises(TensorError) as caught:
            await anext(stream)
        assert caught.value.__notes__ == [
            "in item 1 of a stream over network 'tiny'",
            "closing the source then raised PlantedError('on the way out')",
        ]
        ended.append("consumer")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            assert ended == [], "a run is under way"
            await finish(held)

    run(main)
    check_nothing_left(network)


@EVERY_LOOP
def test_aclose_waits_for_the_runs_before_it_raises_what_a_sync_source_raised(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run
) -> None:
    async def consume() -> None:
        stream = network.stream(endless_source(), look_ahead=2)
        await anext(stream)
        with pytest.raises(PlantedError, match="on the way out"):
            await stream.aclose()
        check_nothing_left(network)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            held[0].held.release()
            await finish(held)

    run(main)


async def test_a_cancelled_consumer_stays_cancelled_whatever_its_source_raises(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = asyncio.create_task(anext(network.stream(endless_source())))
    await settle()
    consumer.cancel()
    with caplog.at_level(logging.WARNING, "aioinfer"), pytest.raises(asyncio.CancelledError):
        await consumer
    assert "on the way out" in caplog.text
    await finish(held)
    check_nothing_left(network)
