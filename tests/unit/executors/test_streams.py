from __future__ import annotations

import gc
import os
import threading
import weakref

import pytest

from aioinfer.errors import ClosedError, PropertyError, RequestStateError
from aioinfer.executors import (
    NOW,
    HostReady,
    Lane,
    Ready,
    StreamsConfig,
    StreamsExecutor,
    is_own_thread,
)
from aioinfer.executors import streams as streams_module
from aioinfer.executors.cpu_allowance import CpuAllowance, allowed_cpus

WAIT_S = 20.0


class Busy:
    """Keeps one worker occupied from ``started`` until ``end`` is set."""

    def __init__(self) -> None:
        self.started, self.end = threading.Event(), threading.Event()

    def __call__(self, lane):
        self.started.set()
        assert self.end.wait(WAIT_S)
        return NOW


class Gate(HostReady):
    """A token that stops the thread that asks it, between run's look at the executor and what
    follows."""

    def __init__(self, is_ready: bool) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()
        if is_ready:
            self.fire()

    @property
    def is_ready(self) -> bool:
        self.asked.set()
        assert self.go_on.wait(WAIT_S)
        return super().is_ready


def in_thread(function, *args) -> threading.Thread:
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def until_refused(executor: StreamsExecutor) -> None:
    """Return once the executor refuses, which another thread is about to make it do."""
    try:
        while True:
            executor.run(lambda lane: NOW, NOW, lambda ready, error: None)
    except ClosedError:
        return


def test_no_thread_exists_before_the_first_run(told) -> None:
    before = threading.active_count()
    executor = StreamsExecutor(StreamsConfig("CPU", 3))
    assert threading.active_count() == before
    executor.run(lambda lane: NOW, NOW, told)
    assert threading.active_count() == before + 3
    told.wait()
    executor.close()


def test_each_worker_is_a_daemon_with_its_own_lane_and_name() -> None:
    barrier, seen = threading.Barrier(2), []

    def function(lane):
        barrier.wait(WAIT_S)  # so that both workers take one
        thread = threading.current_thread()
        seen.append((lane.name, lane.index, lane.thread_count, thread.name, thread.daemon))
        assert is_own_thread()
        return NOW

    with StreamsExecutor(StreamsConfig("CPU", 2, thread_count=5)) as executor:
        executor.run_and_wait([function, function])
    assert sorted(seen) == [("CPU.0", 0, 5, "CPU.0", True), ("CPU.1", 1, 5, "CPU.1", True)]


def test_what_a_lane_keeps_is_there_for_the_next_function() -> None:
    def count(lane):
        lane.local["count"] = lane.local.get("count", 0) + 1
        counts.append(lane.local["count"])
        return NOW

    counts: list[int] = []
    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        executor.run_and_wait([count] * 3)
    assert counts == [1, 2, 3]


@pytest.mark.parametrize(
    ("cpu_count", "stream_count", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1)]
)
def test_threads_per_stream_divide_the_allowed_cpus(
    monkeypatch, cpu_count, stream_count, threads
) -> None:
    monkeypatch.setattr(
        streams_module, "allowed_cpus", lambda: CpuAllowance(tuple(range(cpu_count)))
    )
    assert StreamsExecutor(StreamsConfig("CPU", stream_count)).thread_count == threads


def test_a_configuration_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(PropertyError, match="stream_count is 0; give 1 or more"):
        StreamsConfig("CPU", 0)
    with pytest.raises(PropertyError, match="thread_count is -1"):
        StreamsConfig("CPU", 1, -1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_pinned_stream_runs_on_its_cpus_and_hands_its_binding_to_nobody() -> None:
    cpus, seen = allowed_cpus().cpus, []

    def note(lane):
        seen.append(os.sched_getaffinity(0))
        return NOW

    with (
        StreamsExecutor(StreamsConfig("pinned", 1, 1, pinning=True)) as pinned,
        StreamsExecutor(StreamsConfig("free")) as free,
    ):
        ended = threading.Event()

        def start_the_other(lane):
            note(lane)
            free.run(note, NOW, lambda ready, error: ended.set())
            return NOW

        pinned.run_and_wait([start_the_other])
        assert ended.wait(WAIT_S)
    assert seen == [{cpus[0]}, set(cpus)]


def test_one_stream_runs_in_the_order_of_the_calls() -> None:
    order: list[int] = []
    with StreamsExecutor(StreamsConfig("callback")) as executor:
        executor.run_and_wait([lambda lane, n=n: order.append(n) or NOW for n in range(100)])
    assert order == list(range(100))


def test_ten_submitters_of_5000_increments_are_exact() -> None:
    count, told_count = [0], []

    def increment(lane):
        count[0] += 1  # one stream, so nobody else is here
        return NOW

    def submit() -> None:
        for _ in range(5000):
            executor.run(increment, NOW, lambda ready, error: told_count.append(error))

    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        for thread in [in_thread(submit) for _ in range(10)]:
            thread.join()
    assert count == [50_000]
    assert told_count == [None] * 50_000


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_a_raising_task_never_kills_a_worker(make_told, error) -> None:
    def function(lane):
        raise error

    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        first, second = make_told(), make_told()
        executor.run(function, NOW, first)
        executor.run(lambda lane: NOW, NOW, second)
        assert first.wait() == (NOW, error)
        assert second.wait() == (NOW, None)


def test_a_then_that_raises_is_logged_and_the_worker_goes_on(told, caplog) -> None:
    def broken(ready, error):
        raise RuntimeError("broken")

    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        executor.run(lambda lane: NOW, NOW, broken)
        executor.run(lambda lane: NOW, NOW, told)
        assert told.wait() == (NOW, None)
    assert "raised; what it was to end may never settle" in caplog.text


def test_close_drains_the_queue(make_told) -> None:
    executor, busy, everybody = StreamsExecutor(StreamsConfig("CPU")), Busy(), []
    for function in [busy, *[lambda lane: NOW] * 20]:
        everybody.append(make_told())
        executor.run(function, NOW, everybody[-1])
    assert busy.started.wait(WAIT_S)
    assert repr(executor) == "<StreamsExecutor 'CPU' 1 stream, 20 waiting>"
    busy.end.set()
    executor.close()
    executor.close()
    assert [told.only for told in everybody] == [(NOW, None)] * 21
    assert repr(executor) == "<StreamsExecutor 'CPU' 1 stream, closed>"


def test_close_without_draining_refuses_what_is_queued(make_told) -> None:
    executor, busy = StreamsExecutor(StreamsConfig("CPU")), Busy()
    running, queued = make_told(), [make_told() for _ in range(5)]
    executor.run(busy, NOW, running)
    assert busy.started.wait(WAIT_S)
    for told in queued:
        executor.run(lambda lane: NOW, NOW, told)
    closing = in_thread(lambda: executor.close(drain=False))
    for told in queued:
        ready, error = told.wait()
        assert ready is NOW
        assert isinstance(error, ClosedError)
    busy.end.set()
    closing.join()
    assert running.only == (NOW, None)


def test_two_that_close_at_once_both_return(make_told) -> None:
    executor, busy, queued = StreamsExecutor(StreamsConfig("CPU", 2)), Busy(), make_told()
    executor.run(busy, NOW, make_told())
    executor.run(lambda lane: NOW, HostReady(), queued)
    assert busy.started.wait(WAIT_S)
    draining = in_thread(executor.close)
    aborting = in_thread(lambda: executor.close(drain=False))
    assert isinstance(queued.wait()[1], ClosedError)
    busy.end.set()
    draining.join()
    aborting.join()


def test_an_abort_overtakes_a_close_that_drains(make_told) -> None:
    executor, busy, queued = StreamsExecutor(StreamsConfig("CPU")), Busy(), make_told()
    executor.run(busy, NOW, make_told())
    assert busy.started.wait(WAIT_S)
    executor.run(lambda lane: NOW, NOW, queued)
    draining = in_thread(executor.close)
    while executor.waiting_count < 2:  # until the worker has been told to stop
        threading.Event().wait(0)
    aborting = in_thread(lambda: executor.close(drain=False))
    assert isinstance(queued.wait()[1], ClosedError)
    busy.end.set()
    draining.join()
    aborting.join()


def test_close_of_an_executor_that_never_ran_returns() -> None:
    executor = StreamsExecutor(StreamsConfig("CPU"))
    executor.close()
    with pytest.raises(ClosedError, match="executor 'CPU' is closed"):
        executor.run(lambda lane: NOW, NOW, lambda ready, error: None)


def test_close_refuses_on_the_executors_own_thread() -> None:
    with StreamsExecutor(StreamsConfig("CPU")) as executor:

        def closes(lane):
            executor.close()
            return NOW

        with pytest.raises(RequestStateError, match=r"would block 'CPU.0'"):
            executor.run_and_wait([closes])


def test_what_waits_for_a_token_never_runs_on_the_thread_that_fires_it(told) -> None:
    token, threads = HostReady(), []

    def function(lane):
        threads.append(threading.current_thread().name)
        return NOW

    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        executor.run(function, token, told)
        assert told.calls == []
        token.fire()
        assert told.wait() == (NOW, None)
    assert threads == ["CPU.0"]


@pytest.mark.parametrize("fired_before", [True, False])
def test_a_failed_token_means_that_the_function_is_not_called(told, fired_before) -> None:
    token, error, calls = HostReady(), OSError("device"), []
    if fired_before:
        token.fire(error)
    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        executor.run(lambda lane: calls.append(1) or NOW, token, told)
        token.fire(error)
        assert told.wait() == (NOW, error)
    assert calls == []


def test_close_waits_for_accepted_work_whose_token_has_not_fired(told) -> None:
    executor, token, calls = StreamsExecutor(StreamsConfig("CPU")), HostReady(), []
    executor.run(lambda lane: calls.append(1) or NOW, token, told)
    closing = in_thread(executor.close)
    until_refused(executor)
    token.fire()
    closing.join()
    assert told.only == (NOW, None)
    assert calls == [1]


def test_a_token_that_fires_after_an_aborting_close_settles_nothing_twice(told) -> None:
    executor, token, calls = StreamsExecutor(StreamsConfig("CPU")), HostReady(), []
    executor.run(lambda lane: calls.append(1) or NOW, token, told)
    executor.close(drain=False)
    ready, error = told.only
    assert ready is token  # its device work is still on the way
    assert isinstance(error, ClosedError)
    token.fire()
    assert len(told.calls) == 1
    assert calls == []


def test_a_late_item_is_refused_by_whoever_put_it(told, make_told) -> None:
    executor, gate, calls = StreamsExecutor(StreamsConfig("CPU", 2)), Gate(is_ready=True), []
    executor.run(lambda lane: NOW, NOW, make_told())
    submitting = in_thread(executor.run, lambda lane: calls.append(1) or NOW, gate, told)
    assert gate.asked.wait(WAIT_S)  # run has found the executor open
    executor.close()
    gate.go_on.set()
    submitting.join()
    ready, error = told.only
    assert ready is NOW
    assert isinstance(error, ClosedError)
    assert calls == []
    assert executor.waiting_count == 0


def test_what_comes_to_be_parked_during_close_is_refused_and_not_kept(told, make_told) -> None:
    executor, gate, raised = StreamsExecutor(StreamsConfig("CPU")), Gate(is_ready=False), []
    executor.run(lambda lane: NOW, NOW, make_told())

    def submit() -> None:
        try:
            executor.run(lambda lane: NOW, gate, told)
        except ClosedError as error:
            raised.append(error)

    submitting = in_thread(submit)
    assert gate.asked.wait(WAIT_S)
    executor.close()
    gate.go_on.set()
    submitting.join()
    gate.fire()
    assert len(raised) == 1
    assert told.calls == []


def test_submitters_and_close_at_once_answer_everything_exactly_once(make_told) -> None:
    for _ in range(20):
        executor, barrier = StreamsExecutor(StreamsConfig("CPU", 2)), threading.Barrier(5)
        accepted, refused = [], []

        def submit(executor=executor, barrier=barrier, accepted=accepted, refused=refused) -> None:
            barrier.wait(WAIT_S)
            for _ in range(50):
                told = make_told()
                try:
                    executor.run(lambda lane: NOW, NOW, told)
                    accepted.append(told)
                except ClosedError:
                    refused.append(told)

        submitters = [in_thread(submit) for _ in range(4)]
        barrier.wait(WAIT_S)
        executor.close()
        for thread in submitters:
            thread.join()
        assert [len(told.calls) for told in accepted] == [1] * len(accepted)
        assert [told.calls for told in refused] == [[]] * len(refused)
        assert len(accepted) + len(refused) == 200


def test_executors_that_feed_each_other_never_block_in_run(make_told) -> None:
    """Inner queues with a bound would deadlock here: A -> B -> A, both with one stream."""
    ended = threading.Semaphore(0)
    with (
        StreamsExecutor(StreamsConfig("A")) as first,
        StreamsExecutor(StreamsConfig("B")) as second,
    ):

        def back_to_first(ready: Ready, error: BaseException | None) -> None:
            first.run(lambda lane: NOW, ready, lambda ready, error: ended.release())

        def on_to_second(ready: Ready, error: BaseException | None) -> None:
            second.run(lambda lane: NOW, ready, back_to_first)

        for _ in range(500):
            first.run(lambda lane: NOW, NOW, on_to_second)
        for _ in range(500):
            assert ended.acquire(timeout=WAIT_S)


def test_an_idle_worker_keeps_nothing_alive() -> None:
    class Work:
        def __call__(self, lane):
            return NOW

    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        work, ended = Work(), threading.Event()
        gone = weakref.ref(work)
        forgotten = threading.Event()
        weakref.finalize(work, forgotten.set)
        executor.run(work, NOW, lambda ready, error: ended.set())
        del work
        assert ended.wait(WAIT_S)
        assert forgotten.wait(WAIT_S)
        gc.collect()
        assert gone() is None


def test_the_callers_lane_is_lent_to_one_thread_at_a_time() -> None:
    with StreamsExecutor(StreamsConfig("CPU", 2)) as executor:
        lane = executor.borrow_lane()
        assert lane is not None
        assert (lane.name, lane.index, lane.thread_count) == ("CPU.caller", 2, 1)
        assert lane.context is not None
        assert executor.borrow_lane() is None
        lane.give_back()
        assert executor.borrow_lane() is lane
        lane.give_back()


def test_no_lane_is_lent_past_the_queue_or_after_close() -> None:
    executor, busy = StreamsExecutor(StreamsConfig("CPU")), Busy()
    executor.run(busy, NOW, lambda ready, error: None)
    assert busy.started.wait(WAIT_S)
    executor.run(lambda lane: NOW, NOW, lambda ready, error: None)
    assert executor.borrow_lane() is None
    busy.end.set()
    executor.close()
    assert executor.borrow_lane() is None


def test_it_is_idle_while_no_worker_works_and_nothing_waits() -> None:
    executor = StreamsExecutor(StreamsConfig("idle"))
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def hold(_lane: Lane) -> Ready:
        started.set()
        assert may_end.wait(WAIT_S)
        return NOW

    assert executor.is_idle
    executor.run(hold, NOW, lambda _ready, _error: ended.set())
    assert started.wait(WAIT_S)
    assert not executor.is_idle
    may_end.set()
    assert ended.wait(WAIT_S)
    executor.close()
    assert executor.is_idle


def test_a_function_runs_once_on_each_stream() -> None:
    with StreamsExecutor(StreamsConfig("each", 4)) as executor:
        for _ in range(20):
            lanes: list[int] = []

            def note(lane: Lane, lanes: list[int] = lanes) -> Ready:
                lanes.append(lane.index)
                return NOW

            executor.run_on_each(note)
            assert sorted(lanes) == [0, 1, 2, 3]


def test_the_lane_of_callers_is_one_more_unless_somebody_has_it() -> None:
    with StreamsExecutor(StreamsConfig("each", 2)) as executor:
        threads: dict[int, int] = {}

        def note(lane: Lane) -> Ready:
            threads[lane.index] = threading.get_ident()
            return NOW

        executor.run_on_each(note, on_callers=True)
        assert threads.keys() == {0, 1, 2}
        assert threads[2] == threading.get_ident()
        threads.clear()
        lane = executor.borrow_lane()
        assert lane is not None, "it was not given back"
        executor.run_on_each(note, on_callers=True)
        assert threads.keys() == {0, 1}
        lane.give_back()


def test_two_threads_may_want_each_stream_at_once() -> None:
    with StreamsExecutor(StreamsConfig("each", 3)) as executor:
        lanes: list[int] = []

        def note(lane: Lane) -> Ready:
            lanes.append(lane.index)
            return NOW

        threads = [in_thread(executor.run_on_each, note) for _ in range(4)]
        for thread in threads:
            thread.join(WAIT_S)
        assert sorted(lanes) == sorted([0, 1, 2] * 4)


def test_an_error_on_one_of_the_streams_is_raised() -> None:
    with StreamsExecutor(StreamsConfig("each", 3)) as executor:

        def fail(lane: Lane) -> Ready:
            if lane.index == 1:
                raise ValueError("stream 1")
            return NOW

        with pytest.raises(ValueError, match="stream 1"):
            executor.run_on_each(fail)


def test_a_close_ends_streams_that_wait_for_one_that_will_not_come() -> None:
    executor = StreamsExecutor(StreamsConfig("each", 2))
    busy, errors = Busy(), []
    executor.run(busy, NOW, lambda *_: None)
    assert busy.started.wait(WAIT_S)

    def each() -> None:
        try:
            executor.run_on_each(lambda _lane: NOW)
        except ClosedError as error:
            errors.append(error)

    thread = in_thread(each)
    while executor.waiting_count < 1:  # the other stream waits for the one that is busy
        pass
    closing = in_thread(lambda: executor.close(drain=False))
    thread.join(WAIT_S)
    busy.end.set()
    closing.join(WAIT_S)
    assert len(errors) == 1
    assert not thread.is_alive()
    assert not closing.is_alive()


def test_a_worker_without_memory_for_choosing_its_cpus_works_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking: list[Lane] = []

    def choose(executor: StreamsExecutor, lane: Lane) -> None:
        lacking.append(lane)
        raise MemoryError("for the call")

    monkeypatch.setattr(StreamsExecutor, "_choose_cpus", choose)
    with StreamsExecutor(StreamsConfig("lacking")) as executor:
        executor.run_and_wait([lambda lane: NOW])
    assert len(lacking) == 1
