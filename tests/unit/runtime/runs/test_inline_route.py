"""Runs that stay with their callers: when they do, and that nobody can tell by the outcome."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx
import pytest
import trio
from onnx import TensorProto, helper

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from aioinfer.executors import Lane, TimerHandle
from aioinfer.runtime.loops.inline_turn import ROUND_NS, TURN_NS, InlineTurn, threads
from aioinfer.runtime.network.executable_network import Slot
from aioinfer.runtime.runs.inline_gate import FIRST_RUNS
from aioinfer.testing import VirtualTimer
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin

X = np.array([1, 2, 3], np.float32)
WAIT_S = 20.0  # a bound for what must happen; never slept through
VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="unset")


def doubling_model() -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], "add")], "twice", [x], [y]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def load(core: aioinfer.Core, **config: Any) -> InlineNetwork:
    if not any(name.startswith("INLINE") for name in core.available_devices):
        core.register_plugin("INLINE", InlinePlugin)
    made = core.load_network(doubling_model(), "INLINE", config)
    assert isinstance(made, InlineNetwork)
    return made


@pytest.fixture
def network(core: aioinfer.Core) -> InlineNetwork:
    """A network whose runs are known to be short: by decree, so that no clock decides a test."""
    made = load(core, INLINE_THRESHOLD_US=60_000_000)
    assert made.admission.gate is not None
    made.admission.gate.time_of({"x": X}).is_short = True
    threads.turn = InlineTurn()
    return made


class Seen:
    """Which thread, and which lane, each run was computed on."""

    def __init__(self, network: InlineNetwork) -> None:
        self.threads: list[int] = []
        self.lanes: list[str] = []
        network.compute = self

    def __call__(self, _slot: Slot, lane: Lane) -> None:
        self.threads.append(threading.get_ident())
        self.lanes.append(lane.name)


def on_asyncio(function: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await function()

    return asyncio.run(main())


LOOPS = {"asyncio": on_asyncio, "trio": trio.run}


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_a_short_run_keeps_the_thread_of_its_caller(
    network: InlineNetwork, run: Callable[..., Any]
) -> None:
    seen, request = Seen(network), network.create_infer_request()

    async def main() -> None:
        for infer in (network.infer, request.infer):
            outputs = await infer({"x": X})
            np.testing.assert_array_equal(outputs["y"], X * 2)

    run(main)
    request.infer_sync({"x": X})
    assert seen.threads == [threading.get_ident()] * 3
    assert set(seen.lanes) == {"INLINE.caller"}


def test_runs_that_were_never_measured_go_to_the_workers(core: aioinfer.Core) -> None:
    network = load(core, INLINE_THRESHOLD_US=1_000_000)
    seen, request = Seen(network), network.create_infer_request()
    for _ in range(FIRST_RUNS + 2):
        request.infer_sync({"x": X})
    here = [ident == threading.get_ident() for ident in seen.threads]
    assert here == [False] * FIRST_RUNS + [True] * 2


def test_a_threshold_of_0_switches_it_off_and_can_be_read(core: aioinfer.Core) -> None:
    network = load(core, INLINE_THRESHOLD_US=0)
    assert network.get_config("INLINE_THRESHOLD_US") == 0
    assert load(core).get_config("INLINE_THRESHOLD_US") == 50
    seen, request = Seen(network), network.create_infer_request()
    for _ in range(FIRST_RUNS + 2):
        request.infer_sync({"x": X})
    assert threading.get_ident() not in seen.threads


def test_start_async_always_goes_to_the_workers(network: InlineNetwork) -> None:
    seen, request = Seen(network), network.create_infer_request()
    request.start_async({"x": X})
    assert request.wait(WAIT_S)
    assert threading.get_ident() not in seen.threads
    assert seen.lanes == ["INLINE.0"]


def test_inline_runs_are_counted_and_recorded_like_others(network: InlineNetwork) -> None:
    request = network.create_infer_request()
    outputs = asyncio.run(network.infer({"x": X}))
    first = outputs["y"].copy()
    request.infer_sync({"x": X + 1})
    np.testing.assert_array_equal(outputs["y"], first)
    statistics = network.statistics()
    assert statistics.finished_request_count == 2
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    (stage,) = statistics.stages
    assert (stage.stage, stage.executor, stage.count) == ("compute", "INLINE", 2)
    spans = network.trace()
    assert [span.lane for span in spans] == ["INLINE.caller"] * 2
    assert [span.run_id for span in spans] == [request.id + 1, request.id]
    assert all(span.queued_ns <= span.started_ns <= span.ended_ns for span in spans)
    assert [run.run_id for run in spans.runs] == [request.id + 1, request.id]
    assert statistics.batch_sizes == {X.shape[0]: 2}
    assert request.latency_s > 0
    assert len(network.admission._idle) == network.admission.slot_count


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("is_short", [True, False], ids=["inline", "hopped"])
def test_the_error_of_a_stage_is_raised_as_it_is(
    network: InlineNetwork, kind: type[BaseException], is_short: bool
) -> None:
    error = kind("planted")
    assert network.admission.gate is not None
    network.admission.gate.time_of({"x": X}).is_short = is_short

    def fail(_slot: Slot, _lane: Lane) -> None:
        raise error

    network.compute = fail
    request = network.create_infer_request()
    caught: list[BaseException] = []

    async def main() -> None:
        for infer in (network.infer, request.infer):
            try:
                await infer({"x": X})
            except (ValueError, KeyboardInterrupt) as raised:
                caught.append(raised)

    asyncio.run(main())
    with pytest.raises(kind, match="planted"):
        request.infer_sync({"x": X})
    assert caught == [error, error]
    assert network.statistics().failed_request_count == 3
    assert len(network.admission._idle) == 2


def test_bad_inputs_are_refused_before_anything_is_taken(network: InlineNetwork) -> None:
    async def main() -> None:
        with pytest.raises(TensorError, match="'x' has shape \\[2\\]"):
            await network.infer({"x": X[:2]})

    asyncio.run(main())
    assert network.statistics().failed_request_count == 0
    assert len(network.admission._idle) == 2


def test_a_closed_network_refuses(network: InlineNetwork) -> None:
    request = network.create_infer_request()
    network.close()
    for infer in (network.infer, request.infer):
        with pytest.raises(ClosedError, match="network 'twice' on INLINE is closed"):
            asyncio.run(infer({"x": X}))
    with pytest.raises(ClosedError):
        request.infer_sync({"x": X})


def test_a_deadline_that_has_passed_reaches_no_device(network: InlineNetwork) -> None:
    seen, request = Seen(network), network.create_infer_request()
    network.clock = VirtualTimer()
    with pytest.raises(DeadlineExceededError):
        asyncio.run(request.infer({"x": X}, deadline_s=0.0))
    with pytest.raises(DeadlineExceededError):
        asyncio.run(network.infer({"x": X}, deadline_s=-1.0))
    assert seen.threads == []
    assert network.statistics().expired_request_count == 2


def test_a_deadline_that_passes_amid_the_run_answers_with_its_error(network: InlineNetwork) -> None:
    clock = network.clock = VirtualTimer()
    network.compute = lambda _slot, _lane: clock.advance(2.0)
    request = network.create_infer_request()
    with pytest.raises(DeadlineExceededError, match="did not finish before its deadline"):
        asyncio.run(request.infer({"x": X}, deadline_s=1.0))
    assert "idle" in repr(request)
    assert network.statistics().expired_request_count == 1
    network.compute = lambda _slot, _lane: None
    asyncio.run(request.infer({"x": X}, deadline_s=1.0))
    clock.advance(2.0)
    assert repr(clock) == "<VirtualTimer at 4.0 s, 0 set>"


def test_another_thread_can_cancel_and_wait(network: InlineNetwork) -> None:
    request, order = network.create_infer_request(), []

    def compute(_slot: Slot, _lane: Lane) -> None:
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(RequestBusyError):
                pool.submit(request.start_async, {"x": X}).result(WAIT_S)
            assert pool.submit(repr, request).result(WAIT_S).endswith("busy, running inline>")
            assert pool.submit(request.wait, 0).result(WAIT_S) is False
            pool.submit(request.cancel).result(WAIT_S)
            assert "cancelled" in repr(request)
        waiter.start()

    def wait() -> None:
        with pytest.raises(RequestCancelledError):
            request.wait(WAIT_S)
        order.append("ended")

    waiter = threading.Thread(target=wait)
    network.compute = compute
    with pytest.raises(RequestCancelledError):
        request.infer_sync({"x": X})
    waiter.join(WAIT_S)
    assert order == ["ended"]
    assert network.statistics().cancelled_request_count == 1


def test_a_run_that_waits_is_not_overtaken(network: InlineNetwork) -> None:
    seen: list[float] = []
    is_running, go_on = threading.Event(), threading.Event()

    def compute(slot: Slot, _lane: Lane) -> None:
        seen.append(slot.bindings.inputs["x"][0])
        is_running.set()
        assert go_on.wait(WAIT_S)

    network.compute = compute
    requests = [network.create_infer_request() for _ in range(4)]
    for number, request in enumerate(requests[:3]):
        request.start_async({"x": X + number})
    assert is_running.wait(WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(requests[3].infer_sync, {"x": X + 3})
        while network.statistics().waiting_run_count < 2:
            assert not late.done()
        go_on.set()
        late.result(WAIT_S)
    assert seen == [1.0, 2.0, 3.0, 4.0]


def test_what_is_in_the_executors_queue_is_not_overtaken(network: InlineNetwork) -> None:
    seen = Seen(network)
    is_running, go_on = threading.Event(), threading.Event()

    def hold(_lane: Lane) -> Any:
        is_running.set()
        assert go_on.wait(WAIT_S)
        return aioinfer.executors.NOW

    for _ in range(2):
        network.streams.run(hold, aioinfer.executors.NOW, lambda _ready, _error: None)
    assert is_running.wait(WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(network.create_infer_request().infer_sync, {"x": X})
        while not network.statistics().running_run_count:
            assert not late.done()
        go_on.set()
        late.result(WAIT_S)
    assert seen.lanes == ["INLINE.0"]


def test_two_threads_never_share_the_callers_lane(network: InlineNetwork) -> None:
    inside: dict[str, int] = {}
    lock, failed = threading.Lock(), []

    def compute(_slot: Slot, lane: Lane) -> None:
        with lock:
            inside[lane.name] = inside.get(lane.name, 0) + 1
            if inside[lane.name] > 1:
                failed.append(lane.name)
        with lock:
            inside[lane.name] -= 1

    def use() -> None:
        request = network.create_infer_request()
        for _ in range(200):
            np.testing.assert_array_equal(request.infer_sync({"x": X})["y"], X * 2)

    network.compute = compute
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(use) for _ in range(4)]:
            done.result(WAIT_S)
    assert failed == []
    assert network.statistics().finished_request_count == 800
    assert len(network.admission._idle) == 2


def test_while_one_thread_has_the_lane_another_hops(network: InlineNetwork) -> None:
    lanes: list[str] = []

    def compute(_slot: Slot, lane: Lane) -> None:
        lanes.append(lane.name)
        if lane.name == "INLINE.caller":
            with ThreadPoolExecutor(1) as pool:
                request = network.create_infer_request()
                pool.submit(request.infer_sync, {"x": X}).result(WAIT_S)

    network.compute = compute
    network.create_infer_request().infer_sync({"x": X})
    assert lanes == ["INLINE.caller", "INLINE.0"]


def test_close_waits_for_an_inline_run_of_another_thread(network: InlineNetwork) -> None:
    is_running, go_on, order = threading.Event(), threading.Event(), []

    def compute(_slot: Slot, _lane: Lane) -> None:
        is_running.set()
        assert go_on.wait(WAIT_S)
        order.append("computed")

    def close() -> None:
        network.close()
        order.append("closed")

    network.compute = compute
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(lambda: asyncio.run(network.infer({"x": X})))
        assert is_running.wait(WAIT_S)
        assert "1 runs" in repr(network)
        closing = pool.submit(close)
        while not network.is_closed:
            assert not closing.done()
        go_on.set()
        np.testing.assert_array_equal(running.result(WAIT_S)["y"], X * 2)
        closing.result(WAIT_S)
    assert order == ["computed", "closed"]


def test_abort_ends_an_inline_run_with_its_error(network: InlineNetwork) -> None:
    network.compute = lambda _slot, _lane: network.abort()
    with pytest.raises(ClosedError, match="was closed"):
        asyncio.run(network.infer({"x": X}))
    assert network.statistics().aborted_request_count == 1


def test_stages_see_nothing_of_the_callers_context_and_change_nothing_there(
    network: InlineNetwork,
) -> None:
    seen: list[str] = []

    def compute(_slot: Slot, _lane: Lane) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("of the stage")

    def infer() -> str:
        VARIABLE.set("of the caller")
        network.create_infer_request().infer_sync({"x": X})
        return VARIABLE.get()

    network.compute = compute
    assert contextvars.copy_context().run(infer) == "of the caller"
    assert seen == ["unset"]


def test_a_stage_may_not_wait_for_runs(network: InlineNetwork) -> None:
    raised: list[RequestStateError] = []

    def compute(_slot: Slot, _lane: Lane) -> None:
        with pytest.raises(RequestStateError) as caught:
            network.create_infer_request().infer_sync({"x": X})
        raised.append(caught.value)

    network.compute = compute
    network.create_infer_request().infer_sync({"x": X})
    assert "infer_sync would block" in str(raised[0])


class Ticks:
    """How often a loop has gone round."""

    def __init__(self) -> None:
        self.count = 0

    async def go_on(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["network", "request"])
async def test_a_task_gives_way_when_its_turn_is_over(network: InlineNetwork, way: str) -> None:
    infer = network.infer if way == "network" else network.create_infer_request().infer
    ticks = Ticks()
    ticker = asyncio.create_task(ticks.go_on())
    threads.turn.used_ns = -(10**12)
    for _ in range(50):
        await infer({"x": X})
    assert ticks.count == 0, "within its turn it does not suspend"
    for count in range(1, 4):
        threads.turn.used_ns = TURN_NS
        await infer({"x": X})
        assert ticks.count == count
        assert threads.turn.used_ns == 0
    ticker.cancel()


async def test_tasks_that_compete_give_way_sooner(network: InlineNetwork) -> None:
    threads.turn.used_ns = ROUND_NS // 100
    assert threads.turn.used_ns < TURN_NS
    ticks = Ticks()
    ticker = asyncio.create_task(ticks.go_on())
    threads.turn.share(100)
    await network.infer({"x": X})
    assert ticks.count == 1
    ticker.cancel()


@pytest.mark.parametrize("task_count", [2, 16, 64])
def test_a_timer_waits_no_5_ms_for_tasks_that_infer_all_the_time(task_count: int) -> None:
    turn = InlineTurn()
    turn.share(task_count - 1)
    round_ns = 0
    for _ in range(task_count):
        turn.used_ns = 0
        while turn.used_ns < turn.most_ns:
            turn.used_ns += 10_000
        round_ns += turn.used_ns
    rounds = 3  # the rest of one, one until its task is woken, and one until that is called
    assert rounds * round_ns < 4_000_000


async def test_no_task_starves(network: InlineNetwork) -> None:
    counts = [0] * 8

    async def work(number: int) -> None:
        while min(counts) < 50:
            await network.infer({"x": X})
            counts[number] += 1

    await asyncio.gather(*(work(number) for number in range(len(counts))))
    assert threads.turn.waiting_count == 0


async def test_a_task_that_is_cancelled_while_it_gives_way_ends(network: InlineNetwork) -> None:
    threads.turn.used_ns = TURN_NS
    task = asyncio.create_task(network.infer({"x": X}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads.turn.waiting_count == 0
    assert network.statistics().finished_request_count == 1


def test_a_trio_task_that_is_to_end_ends_at_infer(network: InlineNetwork) -> None:
    seen = Seen(network)
    request = network.create_infer_request()

    async def main() -> None:
        for infer in (network.infer, request.infer):
            with trio.CancelScope() as scope:
                scope.cancel()
                await infer({"x": X})
            assert scope.cancelled_caught

    trio.run(main)
    assert threading.get_ident() not in seen.threads
    network.close()
    counts = network.statistics()
    assert counts.cancelled_request_count + counts.finished_request_count == 0, "none has begun"


def test_bound_outputs_are_written_in_place(network: InlineNetwork) -> None:
    memory = np.zeros(3, np.float32)
    outputs = asyncio.run(network.infer({"x": X}, outputs={"y": memory}))
    assert outputs["y"] is memory
    np.testing.assert_array_equal(memory, X * 2)
    request = network.create_infer_request()
    request.set_tensor("x", X)
    handle = request.get_tensor("y")
    np.testing.assert_array_equal(request.infer_sync()["y"], X * 2)
    np.testing.assert_array_equal(handle.data, X * 2)


def test_a_caller_that_blocks_anyway_keeps_a_longer_run(network: InlineNetwork) -> None:
    gate, here = network.admission.gate, threading.get_ident()
    assert gate is not None
    time = gate.time_of({"x": X})
    time.is_short, time.is_bearable = False, True
    seen, request = Seen(network), network.create_infer_request()
    request.infer_sync({"x": X})
    asyncio.run(network.infer({"x": X}))
    assert [thread == here for thread in seen.threads] == [True, False]


@pytest.mark.parametrize("deadline_s", [60.0, None])
def test_only_a_caller_without_a_deadline_keeps_a_longer_run(
    network: InlineNetwork, deadline_s: float | None
) -> None:
    gate, seen = network.admission.gate, Seen(network)
    assert gate is not None
    time = gate.time_of({"x": X})
    time.is_short, time.is_bearable = False, True
    network.create_infer_request().infer_sync({"x": X}, deadline_s=deadline_s)
    assert (threading.get_ident() in seen.threads) == (deadline_s is None)


def test_a_caller_that_blocks_does_not_compute_beside_a_busy_worker(
    network: InlineNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen = network.admission.gate, Seen(network)
    assert gate is not None
    time = gate.time_of({"x": X})
    time.is_short, time.is_bearable = False, True
    monkeypatch.setattr(type(network.streams), "is_idle", property(lambda _: False))
    network.create_infer_request().infer_sync({"x": X})
    assert threading.get_ident() not in seen.threads


async def test_failing_counts_as_inline_work_and_lets_the_loop_turn(
    network: InlineNetwork,
) -> None:
    def fail(_slot: Slot, _lane: Lane) -> None:
        raise ValueError("broken")

    network.compute = fail
    threads.turn.most_ns = sys.maxsize  # on a busy machine one run may use up the turn
    with pytest.raises(ValueError, match="broken"):
        await network.infer(X)
    assert threads.turn.used_ns > 0
    threads.turn.most_ns = 1
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "of the loop")
    with pytest.raises(ValueError, match="broken"):
        await network.infer(X)
    assert turns == ["of the loop"]
    assert threads.turn.used_ns == 0


async def test_a_run_without_a_request_does_not_overtake_those_that_wait(
    network: InlineNetwork,
) -> None:
    inside, gate = threading.Event(), threading.Event()

    def wait(_slot: Slot, _lane: Lane) -> None:
        inside.set()
        assert gate.wait(WAIT_S)

    network.compute = wait
    requests = [network.create_infer_request() for _ in range(4)]
    for request in requests:
        request.start_async(X)
    assert inside.wait(WAIT_S)
    seen = Seen(network)
    task = asyncio.create_task(network.infer(X))
    await asyncio.sleep(0)
    assert seen.threads == []
    gate.set()
    await task
    assert threading.get_ident() not in seen.threads
    for request in requests:
        request.wait(WAIT_S)


class BrokenTimer(VirtualTimer):
    """A clock that can start no timer, as where the process has no threads left."""

    def call_at(self, when_s: float, call: Callable[[], None]) -> TimerHandle:
        raise DeviceError("starting thread 'aioinfer.timer': no thread can be started")


async def test_a_deadline_that_cannot_be_kept_is_an_error_and_the_slot_is_free_again(
    network: InlineNetwork,
) -> None:
    clock, network.clock = network.clock, BrokenTimer()
    for _ in range(3):
        with pytest.raises(DeviceError, match="no thread can be started"):
            await network.infer(X, deadline_s=5.0)
    assert not network.admission.runs
    network.clock = clock
    assert (await network.infer(X))["y"].tolist() == [2, 4, 6]
    network.close(timeout_s=WAIT_S)
