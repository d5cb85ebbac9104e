"""Streams of results: order, look-ahead, backpressure, and what goes with each item."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    PropertyError,
    TensorError,
)
from aioinfer.runtime.loops.inline_turn import InlineTurn, threads
from aioinfer.runtime.network.result_stream import default_look_ahead
from aioinfer.runtime.properties.properties import UNBOUNDED
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.event_loops import EVERY_LOOP, Run, finish, settle
from unit.runtime.held_runs import X
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin
from unit.runtime.models import expected, tiny_model, two_input_model


class Source:
    """Gives X, X + 1, ... and notes how far it was read."""

    def __init__(self, count: int) -> None:
        self.count, self.pulled = count, 0

    def items(self) -> Iterator[np.ndarray]:
        for number in range(self.count):
            self.pulled += 1
            yield X + number

    async def async_items(self) -> AsyncIterator[np.ndarray]:
        for x in self.items():
            await settle(1)
            yield x

    def of(self, kind: str) -> Any:
        return self.items() if kind == "sync" else self.async_items()


BOTH_KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@EVERY_LOOP
@BOTH_KINDS
@pytest.mark.parametrize("look_ahead", [None, 1, 3, 100])
def test_results_come_in_the_order_of_the_source(
    core: aioinfer.Core, run: Run, kind: str, look_ahead: int | None
) -> None:
    network = core.load_network(tiny_model(), "HETERO:REFERENCE.0,REFERENCE.1")

    async def main() -> None:
        results = [
            outputs["y"]
            async for outputs in network.stream(Source(30).of(kind), True, look_ahead=look_ahead)
        ]
        np.testing.assert_array_equal(results, [expected(X + number) for number in range(30)])
        async for _ in network.stream([]):
            raise AssertionError("an empty source has no results")

    run(main)
    assert network.statistics().finished_request_count == 30


@BOTH_KINDS
async def test_a_result_waits_for_those_before_it(
    held: MockDevices, network: aioinfer.ExecutableNetwork, kind: str
) -> None:
    stream, got = network.stream(Source(3).of(kind)), []

    async def consume() -> None:
        async for outputs in stream:
            got.append(outputs["y"])

    task = asyncio.create_task(consume())
    await settle()
    held[0].held._waiting.rotate()
    held[0].held.release()
    await settle()
    assert got == [], "the second has ended, the first has not"
    await finish(held)
    await task
    np.testing.assert_array_equal(got, [expected(X + number) for number in range(3)])


@EVERY_LOOP
@BOTH_KINDS
def test_unordered_results_come_as_they_finish_with_their_index(
    held: MockDevices, network: aioinfer.ExecutableNetwork, run: Run, kind: str
) -> None:
    got: list[int] = []

    async def consume() -> None:
        async for index, outputs in network.stream(Source(4).of(kind), ordered=False):
            np.testing.assert_array_equal(outputs["y"], expected(X + index))
            got.append(index)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await settle()
            held[0].held._waiting.rotate()
            held[0].held.release()
            await settle()
            assert got == [1]
            await finish(held)

    run(main)
    assert sorted(got) == [0, 1, 2, 3]


@BOTH_KINDS
@pytest.mark.parametrize("is_ordered", [True, False])
async def test_a_slow_consumer_holds_up_the_source(
    held: MockDevices, network: aioinfer.ExecutableNetwork, kind: str, is_ordered: bool
) -> None:
    source = Source(10)
    stream = network.stream(source.of(kind), is_ordered, look_ahead=3)
    assert source.pulled == 0
    pulled = []
    for _ in range(10):
        task = asyncio.create_task(anext(stream))
        await finish(held)
        await task
        await settle()
        pulled.append(source.pulled)
    # A sync source is pulled when a result is asked for, an async one as soon as one is taken.
    first = 3 if kind == "sync" else 4
    assert pulled == [min(first + number, 10) for number in range(10)]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def test_the_default_look_ahead_keeps_a_run_waiting_for_each_slot(
    core: aioinfer.Core, held: MockDevices
) -> None:
    assert default_look_ahead(4, UNBOUNDED) == 8
    assert default_look_ahead(4, 0) == 4
    assert default_look_ahead(4, 100) == 8
    assert default_look_ahead(4, 3) == 7
    source, network = Source(100), core.load_network(tiny_model(), "MOCK.0")

    async def main() -> None:
        stream = network.stream(source.items())
        task = asyncio.create_task(anext(stream))
        await settle()
        assert source.pulled == 4
        held[0].held.release()
        await task
        task = asyncio.create_task(stream.aclose())
        await finish(held)
        await task

    asyncio.run(main())


@EVERY_LOOP
def test_an_async_source_that_waits_for_the_last_result_gets_it(
    core: aioinfer.Core, run: Run
) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    seen: list[np.ndarray] = []

    async def main() -> None:
        answered = anyio.Event()

        async def source() -> AsyncIterator[np.ndarray]:
            nonlocal answered
            for number in range(5):
                yield X + number
                await answered.wait()
                answered = anyio.Event()

        async for outputs in network.stream(source(), look_ahead=4):
            seen.append(outputs["y"])
            answered.set()

    run(main)
    np.testing.assert_array_equal(seen, [expected(X + number) for number in range(5)])


async def test_items_may_have_any_form_that_infer_takes(core: aioinfer.Core) -> None:
    network = core.load_network(two_input_model(), "REFERENCE")
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    forms = [{"a": a, "b": b}, (a, b), [a, b]]
    sums = [outputs["sum"] async for outputs in network.stream(forms)]
    np.testing.assert_array_equal(sums, [a + b] * 3)
    batch = np.stack([X, X + 1])  # an array is an iterable, too
    tiny = core.load_network(tiny_model(), "REFERENCE")
    results = [outputs["y"] async for outputs in tiny.stream(batch)]
    np.testing.assert_array_equal(results, [expected(X), expected(X + 1)])


async def test_each_item_has_the_deadline_counted_from_its_pull(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    clock = network.clock = VirtualTimer()
    stream = network.stream(Source(9).items(), look_ahead=1, deadline_s=2.0)
    for _ in range(2):
        task = asyncio.create_task(anext(stream))
        await settle()
        clock.advance(1.5)
        await finish(held)
        await task
    task = asyncio.create_task(anext(stream))
    await settle()
    clock.advance(2.0)
    await finish(held)
    with pytest.raises(DeadlineExceededError) as caught:
        await task
    assert caught.value.__notes__ == ["in item 2 of a stream over network 'tiny'"]


async def test_a_stream_that_waits_with_an_items_error_is_left_alone_when_that_item_ends(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    clock = network.clock = VirtualTimer()
    stream = network.stream([X, X], look_ahead=2, deadline_s=2.0)
    task = asyncio.create_task(anext(stream))
    await settle()
    clock.advance(2.0)
    await settle()
    held[0].held.release()  # the first item, whose error the stream has; it waits for the second
    await settle()
    assert not task.done()
    await finish(held)
    with pytest.raises(DeadlineExceededError, match="request"):
        await task
    await settle()
    assert caplog.messages == []


@BOTH_KINDS
async def test_the_deadline_goes_on_while_a_full_network_is_waited_for(
    core: aioinfer.Core, held: MockDevices, kind: str
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 1})
    clock = network.clock = VirtualTimer()
    stream = network.stream(Source(4).of(kind), look_ahead=4, deadline_s=2.0)
    task = asyncio.create_task(anext(stream))
    await settle()
    assert network.admission.run_count == 3, "the fourth was pulled and cannot start"
    clock.advance(1.5)
    held[0].held.release(2)
    await task
    await anext(stream)
    task = asyncio.create_task(anext(stream))
    await settle()
    held[0].held.release(1)
    await task
    clock.advance(1.0)
    task = asyncio.create_task(anext(stream))
    await finish(held)
    with pytest.raises(DeadlineExceededError) as caught:
        await task
    assert caught.value.__notes__ == ["in item 3 of a stream over network 'tiny'"]


async def test_a_deadline_that_is_no_time_raises_at_the_first_item(
    network: aioinfer.ExecutableNetwork,
) -> None:
    with pytest.raises(PropertyError, match="deadline_s is nan"):
        await anext(network.stream([X], deadline_s=float("nan")))


async def test_a_priority_goes_with_every_item(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    ordinary = [network.create_infer_request() for _ in range(4)]
    for request in ordinary:
        request.start_async(X)
    task = asyncio.create_task(anext(network.stream([X + 1, X + 2], priority=1)))
    await settle()
    held[0].held.release(2)
    assert [request._state for request in ordinary] == ["idle", "idle", "busy", "busy"]
    held[0].held.release(1)
    await settle()
    np.testing.assert_array_equal((await task)["y"], expected(X + 1))
    await finish(held)


@BOTH_KINDS
async def test_a_full_network_is_waited_for_while_runs_of_the_stream_are_under_way(
    core: aioinfer.Core, held: MockDevices, kind: str
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 1})
    got: list[np.ndarray] = []

    async def consume() -> None:
        async for outputs in network.stream(Source(8).of(kind), look_ahead=6):
            got.append(outputs["y"])

    task = asyncio.create_task(consume())
    await settle()
    assert network.admission.run_count == 3
    await finish(held)
    await task
    assert network.statistics().refused_request_count == 0, "the stream only waited"
    np.testing.assert_array_equal(got, [expected(X + number) for number in range(8)])


async def test_a_stream_that_finds_a_full_network_is_refused(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 1})
    for _ in range(3):
        network.create_infer_request().start_async(X)
    with pytest.raises(OverloadedError) as caught:
        await anext(network.stream([X]))
    assert caught.value.__notes__ == ["in item 0 of a stream over network 'tiny'"]
    await finish(held)


@EVERY_LOOP
@BOTH_KINDS
def test_short_runs_stay_on_the_loop_and_the_loop_has_its_turns(
    core: aioinfer.Core, run: Run, kind: str
) -> None:
    core.register_plugin("INLINE", InlinePlugin)
    config = {"INLINE_THRESHOLD_US": 60_000_000}
    network = core.load_network(tiny_model(), "INLINE", config)
    assert isinstance(network, InlineNetwork)
    seen: set[int] = set()

    def compute(*_: Any) -> None:
        seen.add(threading.get_ident())
        threads.turn.used_ns += 50_000

    turns = 0

    async def main() -> None:
        nonlocal turns
        assert network.admission.gate is not None
        network.admission.gate.time_of({"x": X}).is_short = True
        threads.turn, network.compute = InlineTurn(), compute
        async with anyio.create_task_group() as group:

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    await settle(1)
                    turns += 1

            group.start_soon(count_turns)
            results = [outputs["y"] async for outputs in network.stream(Source(40).of(kind))]
            group.cancel_scope.cancel()
        np.testing.assert_array_equal(results, [(X + number) * 2 for number in range(40)])

    run(main)
    assert seen == {threading.get_ident()}
    assert turns >= 5, "each fourth run at least"


async def test_a_stream_whose_results_are_all_there_lets_the_loop_turn_for_each(
    core: aioinfer.Core, held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    stream = network.stream([X] * 4, look_ahead=4)
    task = asyncio.create_task(anext(stream))
    await finish(held)
    await task
    turns: list[int] = []
    for _ in range(3):
        asyncio.get_running_loop().call_soon(turns.append, 1)
        before = len(turns)
        await anext(stream)
        assert len(turns) > before


USER: ContextVar[str] = ContextVar("USER", default="nobody")


@EVERY_LOOP
def test_an_async_source_runs_in_the_context_of_the_consumer(core: aioinfer.Core, run: Run) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    seen: list[str] = []

    async def source() -> AsyncIterator[np.ndarray]:
        seen.append(USER.get())
        yield X

    async def main() -> None:
        USER.set("ada")
        async for _ in network.stream(source()):
            pass

    run(main)
    assert seen == ["ada"]


@pytest.mark.parametrize("look_ahead", [0, -1, 1.5, "many"])
async def test_a_bad_look_ahead_is_refused(
    network: aioinfer.ExecutableNetwork, look_ahead: Any
) -> None:
    with pytest.raises(PropertyError, match=r"look_ahead is .*; give a whole number of at least 1"):
        network.stream([X], look_ahead=look_ahead)


@pytest.mark.parametrize("source", [3, None, {"x": X}, "model.onnx", np.float32(1), np.array(1.0)])
async def test_what_is_no_source_is_refused(
    network: aioinfer.ExecutableNetwork, source: Any
) -> None:
    with pytest.raises(
        TensorError, match=r"a stream reads an iterable .* for one inference, await"
    ):
        network.stream(source)


async def test_a_closed_network_opens_no_stream(network: aioinfer.ExecutableNetwork) -> None:
    network.close()
    with pytest.raises(ClosedError):
        network.stream([X])
