"""Calls of one turn of a loop whose runs are short: the loop runs them itself, in groups."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.batch import gathering
from aioinfer.backends.batch.executable_network import BatchNetwork
from aioinfer.backends.batch.gathering import CROWD
from aioinfer.backends.batch.member import BatchMember
from aioinfer.errors import ClosedError, DeadlineExceededError, DeviceError
from aioinfer.executors import NOW, Lane, Ready
from aioinfer.runtime.loops.inline_turn import InlineTurn, threads
from aioinfer.runtime.network.executable_network import Slot
from aioinfer.runtime.runs.run import Run
from aioinfer.runtime.runs.stage import Again, Stage
from aioinfer.testing import VirtualTimer
from pending_tasks import expect_pending
from unit.backends.batch.test_crowd import answers, call, outcomes
from unit.backends.batch.test_executable_network import batches, row
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin

HEAD = '<ir_version: 9, opset_import: ["": 20]> g '
ADD = f"{HEAD} (float[batch, 2] x) => (float[batch, 2] y) {{ y = Add (x, x) }}"
TEXTS = f"{HEAD} (string[batch, 2] x) => (string[batch, 2] y) {{ y = Identity (x) }}"
WAIT_S = 20.0  # a bound for what must happen; never slept through


class Gathered:
    """BATCH:INLINE(4), whose runs are known to be short, and a loop that is crowded."""

    def __init__(self, core: aioinfer.Core, *short: int, text: str = ADD) -> None:
        core.register_plugin("INLINE", InlinePlugin)
        # No clock decides a test: what has run three times is short, however busy the machine is.
        forever = {"DEVICE_PROPERTIES": {"INLINE": {"INLINE_THRESHOLD_US": 60_000_000}}}
        made = core.load_network(parser.parse_model(text), "BATCH:INLINE(4)", forever)
        assert isinstance(made, BatchNetwork)
        assert isinstance(made.compiled, InlineNetwork)
        self.network, self.inner = made, made.compiled
        assert self.inner.admission.gate is not None
        for count in short:
            self.inner.admission.gate.time_of({"x": row(0, count=count)}).is_short = True
        self.threads: list[int] = []
        self.sizes: list[int] = []
        self.inner.compute = self._compute
        self.when_computing: Callable[[np.ndarray[Any, Any]], None] = lambda x: None
        crowd()

    def _compute(self, slot: Slot, _lane: Lane) -> None:
        x = slot.bindings.inputs["x"]
        self.threads.append(threading.get_ident())
        self.sizes.append(len(x))
        self.when_computing(x)

    @property
    def were_inline(self) -> bool:
        return set(self.threads) == {threading.get_ident()}


def assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_S)


def crowd() -> None:
    threads.turn = InlineTurn()
    threads.turn.waiting_count = CROWD


def doubled(found: list[Any], numbers: list[int]) -> None:
    for outputs, number in zip(found, numbers, strict=True):
        np.testing.assert_array_equal(outputs["y"], row(2 * number))


def are_over(*networks: aioinfer.ExecutableNetwork) -> bool:
    """Tell whether no run is left; a thread may have answered its caller just now."""
    return all(network.admission.wait_until_over(WAIT_S) for network in networks)


async def test_a_call_where_few_ask_goes_at_once_on_its_callers_thread(core: aioinfer.Core) -> None:
    made = Gathered(core, 1)
    threads.turn = InlineTurn()
    doubled([await made.network.infer(row(3))], [3])
    assert made.were_inline
    assert outcomes(made.network) == {"finished": 1}
    statistics = made.network.statistics()
    assert statistics.group_sizes == {1: 1}
    assert statistics.batch_sizes == statistics.parts[0].batch_sizes == {1: 1}
    assert statistics.slot_wait.count == 1
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    assert made.network.admission.runs == made.inner.admission.runs == set()


async def test_a_call_that_starts_again_on_a_worker_is_counted_once_in_each_network(
    core: aioinfer.Core,
) -> None:
    made = Gathered(core, 1)
    threads.turn = InlineTurn()
    asked: list[int] = []
    for slot in made.inner.admission._idle:
        (stage,) = slot.stages

        def compute(lane: Lane, own: Callable[[Lane], Ready] = stage.function) -> Ready:
            asked.append(threading.get_ident())
            return Again(NOW) if len(asked) == 1 else own(lane)

        slot.stages = (Stage("compute", stage.executor, compute),)
    doubled([await made.network.infer(row(3))], [3])
    assert asked[0] == threading.get_ident() != asked[1]
    assert outcomes(made.network) == {"finished": 1}
    statistics = made.network.statistics()
    assert statistics.group_sizes == {1: 1}
    assert statistics.batch_sizes == statistics.parts[0].batch_sizes == {1: 1}
    assert are_over(made.network, made.inner)
    assert len(made.inner.admission._idle) == made.inner.admission.slot_count


async def test_tasks_that_have_given_way_are_gathered_with_the_first_of_them(
    core: aioinfer.Core,
) -> None:
    made = Gathered(core, 1, 3, 4)
    route = made.network.shared_route
    assert route is not None
    first = route.join(row(1), threads.turn)
    threads.turn.share(CROWD - 1)  # it is back; as few as that would not be a crowd
    others = [route.join(row(number), threads.turn) for number in (2, 3)]
    for share, number in zip([first, *others], (1, 2, 3), strict=True):
        assert share is not None
        await share.future
        doubled([share.results()], [number])
    assert made.sizes == [3]
    threads.turn.share(0)
    assert route.join(row(4), threads.turn) is None, "three are no crowd"
    assert are_over(made.network, made.inner)


async def test_calls_of_one_turn_are_run_together_on_the_loop(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)
    numbers = list(range(9))
    found = await answers(call(made.network, *map(row, numbers)))
    doubled(found, numbers)
    assert made.were_inline
    assert made.sizes == [4, 4, 1]
    assert outcomes(made.network) == {"finished": 9}
    statistics = made.network.statistics()
    assert statistics.group_sizes == {1: 1, 4: 2}
    assert statistics.batch_sizes == {1: 9}
    assert batches(made.network) == {1: 1, 4: 2}
    assert statistics.slot_wait.count == 9
    assert statistics.copied_bytes == {"join": {"host": 2 * 4 * 8}}
    assert sorted(len(span.members) for span in made.network.trace()) == [0, 4, 4]
    assert made.network.admission.runs == made.inner.admission.runs == set()


async def test_calls_of_several_rows_and_lengths_get_their_own(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 2, 3, 4)
    inputs = [row(1), row(2, count=3), row(3, count=2), row(4, count=2), row(5)]
    for given, outputs in zip(inputs, await answers(call(made.network, *inputs)), strict=True):
        np.testing.assert_array_equal(outputs["y"], 2 * given)
    assert made.sizes == [4, 4, 1]


async def test_who_is_cancelled_before_the_turn_ends_takes_no_rows(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 2, 3, 4)
    tasks = call(made.network, row(1), row(2), row(3))

    def cancel() -> None:  # called after the tasks have asked and before their run
        tasks[0].cancel()
        tasks[1].cancel()

    asyncio.get_running_loop().call_soon(cancel)
    first, second, third = await answers(tasks)
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(second, asyncio.CancelledError)
    doubled([third], [3])
    assert sum(made.sizes) <= 3
    assert outcomes(made.network)["cancelled"] == 2
    assert made.network.statistics().batch_sizes == {1: 3}
    assert are_over(made.network)


async def test_calls_that_are_like_the_one_before_are_not_looked_at_again(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Gathered(core, 1, 4)
    looked: list[Any] = []
    check = made.network.check_inputs

    def counted(given: Any) -> dict[str, Any]:
        looked.append(given)
        return check(given)

    monkeypatch.setattr(made.network, "check_inputs", counted)
    doubled(await answers(call(made.network, *(row(number) for number in range(8)))), [*range(8)])
    assert made.sizes == [4, 4]
    assert len(looked) == 2
    assert outcomes(made.network) == {"finished": 8}
    assert made.network.statistics().batch_sizes == {1: 8}
    assert are_over(made.network)


async def test_what_differs_from_the_call_before_is_looked_at(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 2, 3, 4)
    odd = [row(5, length=3), {"z": row(5)}, {"x": row(5), "z": row(5)}]
    plain = {"x": row(6).tolist()}, [row(7)]
    given = [row(1), *odd, {"x": row(2)}, *plain, row(3, count=2), row(4)]
    one, *refused, two, six, seven, twice, four = await answers(call(made.network, *given))
    doubled([one, two, six, seven, four], [1, 2, 6, 7, 4])
    np.testing.assert_array_equal(twice["y"], row(6, count=2))
    assert all(isinstance(error, aioinfer.errors.TensorError) for error in refused)
    assert are_over(made.network)


async def test_items_of_texts_are_looked_at_in_each_call(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 2, 4, text=TEXTS)
    given = [np.array([["a", item]], object) for item in ("b", b"b", 2, None, "c")]
    one, *refused, two = await answers(call(made.network, *given))
    assert [found["y"].tolist() for found in (one, two)] == [[["aa", "bb"]], [["aa", "cc"]]]
    for error in refused:
        assert isinstance(error, aioinfer.errors.TensorError)
        assert "only str is wanted" in str(error)
    assert made.sizes == [2]
    assert are_over(made.network)


async def test_an_array_that_a_caller_exchanges_after_its_call_is_not_read(
    core: aioinfer.Core,
) -> None:
    made = Gathered(core, 1, 4)
    given = [{"x": row(number)} for number in range(4)]
    calls = call(made.network, *given)
    await asyncio.sleep(0)
    for inputs in given:
        inputs["x"] = row(9)
    doubled(await answers(calls), [*range(4)])
    assert made.sizes == [4]


async def test_one_bad_item_fails_alone(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)

    def refuse(x: np.ndarray[Any, Any]) -> None:
        if (x == 7).any():
            raise ValueError("seven")

    made.when_computing = refuse
    for _ in range(2):  # the round after an error is clean
        crowd()
        one, bad, two, three = await answers(call(made.network, row(1), row(7), row(2), row(3)))
        doubled([one, two, three], [1, 2, 3])
        assert isinstance(bad, ValueError)
        assert "run together with 3 other requests" in bad.__notes__[-1]
    assert outcomes(made.network) == {"finished": 6, "failed": 2}
    assert made.network.statistics().batch_sizes == {1: 8}
    assert are_over(made.network)


async def test_a_call_that_is_gathered_alone_gets_its_own_error(core: aioinfer.Core) -> None:
    made = Gathered(core, 1)

    def refuse(_x: np.ndarray[Any, Any]) -> None:
        raise ValueError("no")

    made.when_computing = refuse
    (found,) = await answers(call(made.network, row(1)))
    assert isinstance(found, ValueError)
    assert not hasattr(found, "__notes__")
    assert outcomes(made.network) == {"failed": 1}


async def test_outputs_that_cannot_be_shared_out_are_made_one_by_one(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)

    class Longer(dict[str, Any]):
        """What a device delivers that makes a line too many for several rows."""

        def __setitem__(self, name: str, value: np.ndarray[Any, Any]) -> None:
            super().__setitem__(name, value if len(value) == 1 else np.append(value, value[:1], 0))

    def lengthen(slot: Slot, _lane: Lane) -> None:
        slot.bindings.results = Longer()

    made.inner.compute = lengthen
    found = await answers(call(made.network, *map(row, range(4))))
    doubled(found, list(range(4)))
    assert outcomes(made.network) == {"finished": 4}


async def test_what_is_not_known_to_be_short_is_left_to_the_workers(core: aioinfer.Core) -> None:
    made = Gathered(core)
    asked = threading.Event()
    made.when_computing = lambda _x: assert_set(asked)  # nothing is known before all have asked
    tasks = call(made.network, *map(row, range(9)))
    asyncio.get_running_loop().call_soon(asked.set)
    doubled(await answers(tasks), list(range(9)))
    assert threading.get_ident() not in made.threads


async def test_a_group_whose_plan_is_long_goes_to_the_workers(core: aioinfer.Core) -> None:
    made = Gathered(core, 1)
    doubled(await answers(call(made.network, *map(row, range(8)))), list(range(8)))
    assert threading.get_ident() not in made.threads
    assert made.network.statistics().batch_sizes == {1: 8}
    assert outcomes(made.network) == {"finished": 8}


async def test_where_only_full_groups_have_run_they_tell_what_is_short(core: aioinfer.Core) -> None:
    made = Gathered(core, 4)
    doubled(await answers(call(made.network, *map(row, range(8)))), list(range(8)))
    assert made.sizes == [4, 4]
    assert made.were_inline


async def test_while_another_thread_has_the_lane_workers_run(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)
    lane = made.inner.streams.borrow_lane()
    assert lane is not None
    try:
        doubled(await answers(call(made.network, *map(row, range(4)))), list(range(4)))
    finally:
        lane.give_back()
    assert not made.were_inline


async def test_the_loop_helps_with_what_waits_and_overtakes_nobody(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Gathered(core, 1, 4)
    run_over, all_over = made.network._run_over, threading.Event()

    def over(began_s: float, turn: Any) -> None:  # a worker counts its run after it has answered
        run_over(began_s, turn)
        if not made.network.run_count:
            all_over.set()

    monkeypatch.setattr(made.network, "_run_over", over)
    may_go_on, has_begun, order = threading.Event(), threading.Event(), list[float]()
    loop_thread = threading.get_ident()

    def note(x: np.ndarray[Any, Any]) -> None:
        if threading.get_ident() == loop_thread:
            order.extend(x[:, 0])
        else:
            has_begun.set()
            assert may_go_on.wait(WAIT_S)

    made.when_computing = note
    held = [made.network.create_infer_request() for _ in range(2)]
    held[0].start_async(row(100))
    assert await asyncio.to_thread(has_begun.wait, WAIT_S)
    held[1].start_async(row(1))  # waits for the worker
    tasks = call(made.network, *map(row, (2, 3, 4)))
    try:
        doubled(await answers(tasks), [2, 3, 4])
        assert order == [1, 2, 3, 4]
        assert held[1].wait(0)
    finally:
        may_go_on.set()
    assert await asyncio.to_thread(held[0].wait, WAIT_S)
    np.testing.assert_array_equal(held[1].results["y"], row(2))
    assert await asyncio.to_thread(all_over.wait, WAIT_S)
    assert made.network.run_count == 0


async def test_after_half_a_millisecond_the_loop_has_its_turn(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "ROUND_NS", -1)
    made = Gathered(core, 1, 4)
    turns: list[int] = []
    made.when_computing = lambda _x: asyncio.get_running_loop().call_soon(
        lambda: turns.append(len(made.sizes))
    )
    doubled(await answers(call(made.network, *map(row, range(16)))), list(range(16)))
    assert made.sizes == [4] * 4
    assert turns == [1, 2, 3, 4]


async def test_close_on_the_loops_own_thread_serves_what_was_gathered(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)
    tasks = call(made.network, *map(row, range(6)))
    asyncio.get_running_loop().call_soon(made.network.close)
    doubled(await answers(tasks), list(range(6)))
    assert made.network.is_closed


async def test_abort_answers_what_was_gathered(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)
    release = threading.Event()
    made.when_computing = lambda _x: assert_set(release)
    tasks = call(made.network, *map(row, range(6)))
    asyncio.get_running_loop().call_soon(made.network.abort)
    asyncio.get_running_loop().call_soon(release.set)
    found = await answers(tasks)
    assert all(isinstance(error, ClosedError) for error in found)
    assert outcomes(made.network) == {"aborted": 6}


async def test_what_a_closing_network_refuses_has_come_and_is_settled_once(
    core: aioinfer.Core,
) -> None:
    made = Gathered(core, 1, 4)
    tasks = call(made.network, *map(row, range(6)))
    await asyncio.sleep(0)
    made.network.admission.is_closed = True  # another thread's close has come so far
    found = await answers(tasks)
    assert all(isinstance(error, ClosedError) for error in found)
    statistics = made.network.statistics()
    assert outcomes(made.network) == {"aborted": 6}
    assert statistics.batch_sizes == {1: 6}
    assert statistics.slot_wait.count == 6
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    assert are_over(made.network, made.inner)
    assert len(made.inner.admission._idle) == made.inner.admission.slot_count


@pytest.mark.parametrize("has_stopped_runs", [False, True])
async def test_a_call_alone_that_a_close_overtakes_has_come_and_is_settled_once(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, has_stopped_runs: bool
) -> None:
    made = Gathered(core, 1)
    threads.turn = InlineTurn()
    lend, admission = made.inner.admission.lend, made.network.admission

    def lend_late(run: Run, outer: Any) -> bool:
        has_slot = lend(run, outer)  # another thread's close comes so far now
        admission.is_closed = True
        if has_stopped_runs:
            admission.stop_all(lambda: ClosedError("closed"))
        return has_slot

    monkeypatch.setattr(made.inner.admission, "lend", lend_late)
    with pytest.raises(ClosedError):
        await made.network.infer(row(1))
    assert outcomes(made.network) == {"aborted": 1}
    assert made.network.statistics().batch_sizes == {1: 1}
    assert are_over(made.network, made.inner)
    assert len(made.inner.admission._idle) == made.inner.admission.slot_count


async def test_calls_that_no_memory_was_left_to_help_are_settled_once(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Gathered(core, 1, 4)
    may_go_on, has_begun = threading.Event(), threading.Event()
    loop_thread = threading.get_ident()

    def hold(_x: np.ndarray[Any, Any]) -> None:
        if threading.get_ident() != loop_thread:
            has_begun.set()
            assert_set(may_go_on)

    made.when_computing = hold
    held = [made.network.create_infer_request() for _ in range(2)]
    held[0].start_async(row(100))
    assert await asyncio.to_thread(has_begun.wait, WAIT_S)
    held[1].start_async(row(1))  # waits for the worker, so that the loop is to help
    take, refused = made.network._take_group, list[bool]()

    def take_late() -> Any:
        if not refused:
            refused.append(True)
            raise MemoryError
        return take()

    monkeypatch.setattr(made.network, "_take_group", take_late)
    try:
        found = await answers(call(made.network, *map(row, (2, 3, 4))))
    finally:
        may_go_on.set()
    assert [type(error) for error in found] == [DeviceError] * 3
    for request in held:
        assert await asyncio.to_thread(request.wait, WAIT_S)
    assert are_over(made.network, made.inner)
    assert outcomes(made.network) == {"finished": 2, "failed": 3}
    assert made.network.statistics().batch_sizes == {1: 5}
    assert sum(made.sizes) <= 5
    assert made.network.collector.row_count == 0


async def test_while_a_close_launches_what_was_gathered_calls_come_and_leave(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Gathered(core, 1, 4)
    offer, crowd_of = made.network.offer, made.network.shared_route
    assert crowd_of is not None
    late: list[Any] = []

    def offer_late(member: BatchMember) -> None:  # here the thread of the loop goes on
        if not late:
            assert leaving is not None
            leaving.leave()
            late.append(crowd_of.join(row(9), threads.turn))
        offer(member)

    monkeypatch.setattr(made.network, "offer", offer_late)
    tasks = call(made.network, row(1))
    await asyncio.sleep(0)  # it has asked
    leaving = crowd_of.join(row(5), threads.turn)
    made.network.close()
    doubled(await answers(tasks), [1])
    await late[0].future
    doubled([late[0].results()], [9])
    assert outcomes(made.network) == {"finished": 2, "cancelled": 1}
    assert made.network.statistics().batch_sizes == {1: 3}
    assert (made.network.run_count, made.network.collector.row_count) == (0, 0)


async def test_an_error_amid_the_runs_of_single_calls_leaves_each_its_own_answer(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Gathered(core, 1, 4)
    loop, release, entered = asyncio.get_running_loop(), threading.Event(), list[Run]()
    enter = made.network.admission.enter

    def refuse(x: np.ndarray[Any, Any]) -> None:
        if len(x) == 4:
            raise ValueError("together")
        assert release.wait(WAIT_S)

    def enter_once(run: Run, **options: bool) -> bool:
        if entered:
            # After whom an error wakes has asked for the results.
            loop.call_soon(loop.call_soon, release.set)
            raise MemoryError
        entered.append(run)
        return enter(run, **options)

    made.when_computing = refuse
    monkeypatch.setattr(made.network.admission, "enter", enter_once)
    first, *others = await answers(call(made.network, *map(row, range(4))))
    doubled([first], [0])
    assert [type(error) for error in others] == [DeviceError] * 3
    assert outcomes(made.network) == {"finished": 1, "failed": 3}
    assert are_over(made.network)


def test_a_loop_that_is_closed_holds_up_no_close(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)
    loop = asyncio.new_event_loop()

    async def ask() -> None:
        tasks = [loop.create_task(made.network.infer(row(number))) for number in range(3)]
        expect_pending(tasks)
        loop.call_soon(loop.stop)

    task = loop.create_task(ask())
    loop.run_forever()  # ends when the calls were made, and before their run
    assert task.done()
    loop.close()
    assert made.network.close(timeout_s=WAIT_S)


def test_a_loop_that_has_ended_is_not_kept(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 4)

    async def ask() -> weakref.ref[Any]:
        crowd()
        doubled(await answers(call(made.network, *map(row, range(8)))), list(range(8)))
        return weakref.ref(asyncio.get_running_loop())

    known = asyncio.run(ask())
    gc.collect()
    assert known() is None
    assert made.sizes == [4, 4]


async def test_calls_with_a_deadline_stay_on_their_thread_and_expire(core: aioinfer.Core) -> None:
    made = Gathered(core, 1)
    made.network.clock = clock = VirtualTimer()
    doubled([await made.network.infer(row(1), deadline_s=1.0, priority=3)], [1])
    assert made.were_inline
    made.when_computing = lambda _x: clock.advance(2.0)
    with pytest.raises(DeadlineExceededError):
        await made.network.infer(row(1), deadline_s=1.0)
    assert outcomes(made.network) == {"finished": 1, "expired": 1}


def test_a_caller_that_blocks_keeps_a_short_run_and_no_longer_one(core: aioinfer.Core) -> None:
    made = Gathered(core, 1)
    request = made.network.create_infer_request()
    doubled([request.infer_sync(row(1))], [1])
    assert made.were_inline
    assert made.inner.admission.gate is not None
    made.inner.admission.gate.time_of({"x": row(0, count=2)}).is_bearable = True
    request.infer_sync(row(1, count=2))  # it would keep others out of a run
    assert not made.were_inline
    assert made.network.statistics().group_sizes == {1: 2}


def test_threads_with_loops_of_their_own_get_their_answers(core: aioinfer.Core) -> None:
    made = Gathered(core, 1, 2, 3, 4)
    found: dict[int, list[Any]] = {}

    async def ask(base: int) -> None:
        for turn in range(20):
            crowd()
            numbers = [base + 10 * turn + number for number in range(6)]
            doubled(await answers(call(made.network, *map(row, numbers))), numbers)
        found[base] = [turn]

    users = [threading.Thread(target=asyncio.run, args=(ask(base),)) for base in (0, 1000, 2000)]
    for user in users:
        user.start()
    for user in users:
        user.join(WAIT_S)
    assert sorted(found) == [0, 1000, 2000]
    assert outcomes(made.network) == {"finished": 360}
    sizes = made.network.statistics().group_sizes
    assert sum(size * count for size, count in sizes.items()) == 360
    assert made.network.run_count == 0
