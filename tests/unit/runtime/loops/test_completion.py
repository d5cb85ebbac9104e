"""Awaiting what another thread ends: asyncio, uvloop and trio, one wake-up for all, and no more."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from weakref import ref

import numpy as np
import pytest
import trio
import trio.testing

import aioinfer
from aioinfer.executors import NOW, Lane, Ready, StreamsConfig, StreamsExecutor
from aioinfer.runtime.loops import completion
from aioinfer.runtime.loops.completion import new_future, until
from aioinfer.testing import MockDevices
from pending_tasks import expect_pending
from unit.executors.test_fork_and_exit import FORK, run
from unit.runtime.event_loops import EVERY_LOOP, Main
from unit.runtime.models import expected, tiny_model

uvloop = pytest.importorskip("uvloop")

X = np.array([[-1, 2, 3]], np.float32)
WAIT_S = 20.0  # a bound for what must happen; never slept through
Wake = Callable[[], None]
NEEDS_EVENTFD = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="this system has no eventfd")


def nothing() -> None:
    pass


def in_thread(call: Callable[[], object]) -> None:
    """Call it on a thread of its own, and wait for that: the loop does not turn meanwhile."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@EVERY_LOOP
def test_a_thread_ends_the_wait(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        await until(lambda wake: threading.Thread(target=wake).start(), nothing)

    run(main)


@EVERY_LOOP
def test_what_is_over_already_ends_the_wait(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        for _ in range(3):
            await until(lambda wake: wake(), nothing)

    run(main)


@EVERY_LOOP
def test_waking_twice_is_fine(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        def register(wake: Wake) -> None:
            in_thread(wake)
            in_thread(wake)

        await until(register, nothing)
        await until(lambda wake: wake(), nothing)

    run(main)


def test_outside_of_a_loop_it_is_an_error() -> None:
    coroutine = until(lambda wake: wake(), nothing)
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


async def test_cancelling_the_asyncio_task_tells_and_goes_on() -> None:
    told: list[str] = []
    wakes: list[Wake] = []
    task = asyncio.create_task(until(wakes.append, lambda: told.append("cancelled")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["cancelled"]
    wakes[0]()  # late, and nobody minds
    await asyncio.sleep(0)


def test_cancelling_the_trio_scope_tells_and_goes_on() -> None:
    told: list[str] = []
    wakes: list[Wake] = []

    async def main() -> None:
        with trio.CancelScope() as scope:

            def register(wake: Wake) -> None:
                wakes.append(wake)
                scope.cancel()

            await until(register, lambda: told.append("cancelled"))
        assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            await until(wakes.append, lambda: told.append("before it waited"))
        wakes[0]()
        await trio.testing.wait_all_tasks_blocked()

    trio.run(main)
    assert told == ["cancelled", "before it waited"]
    assert len(wakes) == 1, "a cancelled task does not even register"


class PlainLoop(asyncio.SelectorEventLoop):
    """Watches no descriptors, like loops of other systems."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        raise NotImplementedError


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists how loops of asyncio were woken."""
    calls: list[str] = []
    write, call_soon = getattr(os, "eventfd_write", None), PlainLoop.call_soon_threadsafe

    def counted_write(descriptor: int, value: int) -> None:
        calls.append("eventfd")
        assert write is not None
        write(descriptor, value)

    def counted_call(self: Any, *args: Any, **kwargs: Any) -> asyncio.Handle:
        calls.append("call_soon_threadsafe")
        return call_soon(self, *args, **kwargs)

    monkeypatch.setattr(PlainLoop, "call_soon_threadsafe", counted_call)
    if write is not None:
        monkeypatch.setattr(os, "eventfd_write", counted_write)
    return calls


@pytest.mark.parametrize(
    ("make_loop", "call"),
    [
        (PlainLoop, "call_soon_threadsafe"),
        pytest.param(asyncio.SelectorEventLoop, "eventfd", marks=NEEDS_EVENTFD),
        pytest.param(uvloop.new_event_loop, "eventfd", marks=NEEDS_EVENTFD),
    ],
)
def test_all_that_ends_before_the_loop_turns_costs_one_wake_up(
    make_loop: Callable[[], asyncio.AbstractEventLoop], call: str, woken: list[str]
) -> None:
    async def main() -> None:
        for round_number in (1, 2):
            wakes: list[Wake] = []
            tasks = [asyncio.create_task(until(wakes.append, nothing)) for _ in range(100)]
            await asyncio.sleep(0)
            for start in range(0, 100, 25):
                in_thread(lambda some=wakes[start : start + 25]: [wake() for wake in some])
            assert woken == [call] * round_number
            await asyncio.gather(*tasks)
            assert woken == [call] * round_number

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


@NEEDS_EVENTFD
def test_a_post_wakes_the_loop_after_one_that_found_no_memory_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        future, find_waker = new_future()
        waker = find_waker()
        assert waker is not None
        with monkeypatch.context() as scarce:
            scarce.setattr(os, "eventfd_write", Mock(side_effect=MemoryError))
            with pytest.raises(MemoryError):
                waker.post(nothing)
        in_thread(lambda: waker.post(partial(future.set_result, None)))
        await asyncio.wait_for(future, 10)

    asyncio.run(main())


@pytest.mark.parametrize("error_count", [1, 2])
@pytest.mark.parametrize("make_loop", [PlainLoop, asyncio.new_event_loop, uvloop.new_event_loop])
def test_answers_behind_one_that_finds_no_memory_do_not_wait_for_the_next(
    make_loop: Callable[[], asyncio.AbstractEventLoop], error_count: int
) -> None:
    errors: list[BaseException] = [MemoryError("to resolve") for _ in range(error_count)]
    told: list[BaseException] = []

    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        future, find_waker = new_future()
        waker = find_waker()
        assert waker is not None
        called: list[bool] = []

        def first() -> None:
            if errors:
                raise errors.pop()
            called.append(True)

        def last() -> None:
            future.set_result(None)

        in_thread(lambda: [waker.post(call) for call in (first, last)])
        await asyncio.wait_for(future, 20)
        return called

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(main()) == ([True] if error_count == 1 else [])
    assert len(told) == error_count - 1


@NEEDS_EVENTFD
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_descriptor_goes_with_its_loop(
    make_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make = os.eventfd

    def noted(*args: Any) -> int:
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(os, "eventfd", noted)
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(until(lambda wake: in_thread(wake), nothing))
    del runner
    gc.collect()
    (descriptor,) = made
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_trio_too_is_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    run_sync_soon = trio.lowlevel.TrioToken.run_sync_soon

    def counted(self: Any, call: Any, *args: Any, **kwargs: Any) -> None:
        calls.append(call)
        run_sync_soon(self, call, *args, **kwargs)

    monkeypatch.setattr(trio.lowlevel.TrioToken, "run_sync_soon", counted)

    async def main() -> None:
        wakes: list[Wake] = []
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(until, wakes.append, nothing)
            await trio.testing.wait_all_tasks_blocked()
            in_thread(lambda: [wake() for wake in wakes])
            assert len(calls) == 1

    trio.run(main)


async def test_a_task_that_wakes_another_while_the_loop_drains_is_heard() -> None:
    wakes: list[Wake] = []

    async def relay() -> None:
        await until(lambda wake: in_thread(wake), nothing)
        wakes[0]()

    waiting = asyncio.create_task(until(wakes.append, nothing))
    await asyncio.gather(waiting, asyncio.create_task(relay()))


def test_a_loop_that_stands_still_is_answered_when_it_turns_again() -> None:
    loop = asyncio.new_event_loop()
    wakes: list[Wake] = []
    task = loop.create_task(until(wakes.append, nothing))
    loop.run_until_complete(asyncio.sleep(0))
    in_thread(wakes[0])
    loop.run_until_complete(task)
    loop.close()


def test_a_closed_loop_drops_the_answer_and_never_the_slot(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = [network.create_infer_request() for _ in range(3)]  # one more than there are slots
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(request.infer(X)) for request in requests]
    loop.run_until_complete(asyncio.sleep(0))
    waker = completion._Process.wakers[id(loop)]
    loop.close()
    while held[0].held.waiting_count:
        held[0].held.release()
    for request in requests:
        assert request.wait(0) is True
        np.testing.assert_array_equal(request.results["y"], expected(X))
    statistics = network.statistics()
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    assert statistics.finished_request_count == 3
    assert not waker._posted, "what nobody will ever read is not kept"
    expect_pending(tasks)


@EVERY_LOOP
def test_a_waker_does_not_keep_its_loop_alive(run: Callable[[Main], None]) -> None:
    loops: list[ref[Any]] = []

    async def main() -> None:
        await until(lambda wake: in_thread(wake), nothing)
        if completion.on_trio():
            loops.append(ref(trio.lowlevel.current_trio_token()))
        else:
            loops.append(ref(asyncio.get_running_loop()))

    run(main)
    gc.collect()
    assert loops[0]() is None


def eventfd_count() -> int:
    """How many eventfds this process has."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += entry.readlink().name == "anon_inode:[eventfd]"
        except OSError:  # the descriptor that lists the others
            pass
    return count


@NEEDS_EVENTFD
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop, PlainLoop])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_loops_closed_with_runs_in_flight_leave_nothing(
    core: aioinfer.Core,
    held: MockDevices,
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    moment: str,
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    alive: list[ref[Any]] = []

    def end_all_runs() -> None:
        while held[0].held.waiting_count:
            held[0].held.release()

    def leave_one() -> None:
        loop = make_loop()
        tasks = [loop.create_task(network.infer(X)) for _ in range(3)]
        loop.run_until_complete(asyncio.sleep(0))
        if moment == "before":  # the answers are on their way when the loop is closed
            end_all_runs()
        alive.append(ref(loop))
        for task in tasks:
            alive.append(ref(task))
        expect_pending(tasks)
        loop.close()

    leave_one()  # the first loop of a process opens what it has for all
    descriptor_count, eventfds = len(os.listdir("/proc/self/fd")), eventfd_count()
    for _ in range(50):
        leave_one()
    assert eventfd_count() == eventfds, "a loop that is closed gives back what woke it"
    assert len(os.listdir("/proc/self/fd")) == descriptor_count
    end_all_runs()
    assert network.statistics().running_run_count == 0
    if make_loop is PlainLoop:  # whose thread keeps the waker of the loop that it ran last
        asyncio.run(until(lambda wake: wake(), nothing))
    else:
        assert not wakers_of_closed_loops()
    gc.collect()  # tasks and the futures that they wait for know each other: asyncio's own cycles
    assert not [one for one in alive if one() is not None]


def wakers_of_closed_loops() -> list[object]:
    wakers = list(completion._Process.wakers.values())
    return [waker for waker in wakers if (loop := waker.loop()) is not None and loop.is_closed()]


@NEEDS_EVENTFD
def test_without_a_descriptor_left_a_loop_is_woken_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(*_args: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "eventfd", exhausted)
    for _ in range(2):
        asyncio.run(until(lambda wake: threading.Thread(target=wake).start(), nothing))


def test_two_loops_of_one_thread_keep_their_wakers() -> None:
    async def main() -> completion.LoopWaker:
        await until(lambda wake: in_thread(wake), nothing)
        return completion._Process.wakers[id(asyncio.get_running_loop())]

    loops = [asyncio.new_event_loop() for _ in range(2)]
    first = [loop.run_until_complete(main()) for loop in loops]
    assert [loop.run_until_complete(main()) for loop in loops] == first
    assert first[0] is not first[1]
    for loop in loops:
        loop.close()


@pytest.mark.parametrize("order", ["cancelled, then drained", "drained, then cancelled"])
async def test_cancel_while_the_answer_is_on_its_way(
    core: aioinfer.Core, held: MockDevices, order: str
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    task = asyncio.create_task(request.infer(X))
    await asyncio.sleep(0)
    if order == "cancelled, then drained":
        held[0].held.release()
        task.cancel()
    else:
        held[0].held.release()
        asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    statistics = network.statistics()
    assert statistics.finished_request_count == 1, "the device had finished it"
    assert statistics.cancelled_request_count == 0
    assert "idle" in repr(request)
    task = asyncio.create_task(request.infer(X))
    await asyncio.sleep(0)
    held[0].held.release()
    np.testing.assert_array_equal((await task)["y"], expected(X))


def test_cancel_while_the_answer_is_on_its_way_to_trio(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request.infer, X)
            await trio.testing.wait_all_tasks_blocked()
            held[0].held.release()
            nursery.cancel_scope.cancel()
        assert network.statistics().finished_request_count == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request.infer, X)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert "cancelled" in repr(request), "this one was still with the device"
        held[0].held.release()
        assert "idle" in repr(request)

    trio.run(main)


@FORK
def test_a_child_that_was_forked_while_a_waker_was_made_has_wakers_of_its_own(
    tmp_path: Path,
) -> None:
    run(
        """
        import asyncio
        from aioinfer.runtime.loops import completion

        async def main():
            await completion.until(
                lambda wake: threading.Thread(target=wake).start(), lambda: None
            )

        held, forked = threading.Event(), threading.Event()

        def hold():
            with completion._Process.lock:
                held.set()
                assert forked.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(20)
        in_child(lambda: asyncio.run(asyncio.wait_for(main(), 20)))
        forked.set()
        thread.join()
        """,
        tmp_path,
    )


async def test_no_answer_waits_for_the_long_job_that_a_worker_takes_next() -> None:
    is_running, gate, ended = threading.Event(), threading.Event(), threading.Event()

    async def ask(executor: StreamsExecutor, work: Callable[[Lane], Ready]) -> None:
        await until(lambda wake: executor.run(work, NOW, lambda _ready, _error: wake()), nothing)

    def short(_lane: Lane) -> Ready:
        return NOW

    def long(_lane: Lane) -> Ready:
        is_running.set()
        assert gate.wait(WAIT_S)
        return NOW

    def short_before_others(_lane: Lane) -> Ready:
        busy.run(short, NOW, lambda _ready, _error: None)
        busy.run(long, NOW, lambda _ready, _error: ended.set())
        return NOW

    busy, other = StreamsExecutor(StreamsConfig("busy")), StreamsExecutor(StreamsConfig("other"))
    with busy, other:
        for _ in range(100):  # a worker might take jobs for short that have long been so
            await ask(busy, short)
        try:
            await asyncio.wait_for(ask(busy, short_before_others), WAIT_S)
            assert is_running.wait(WAIT_S)
            await asyncio.wait_for(ask(other, short), WAIT_S)
            assert not ended.is_set()
        finally:
            gate.set()


def test_a_trio_task_that_was_refused_is_not_woken_where_it_went_on() -> None:
    def refuse(wake: Callable[[], None]) -> None:
        wake()
        raise ValueError("refused")

    async def main() -> None:
        with pytest.raises(ValueError, match="refused"):
            await until(refuse, nothing)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(0.01):  # virtual: the clock jumps when everybody waits
            await trio.sleep_forever()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
