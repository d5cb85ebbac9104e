"""What a worker puts off, for how long, and that nothing is forgotten."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

import pytest

from aioinfer.executors import NOW, Lane, Ready, StreamsConfig, StreamsExecutor, call_soon
from aioinfer.executors.late_calls import FORGOTTEN, LONGEST_WAIT_NS, SHORT_JOB_NS, LateCalls

WAIT_S = 20.0  # a bound for what must happen; never slept through


class Clock:
    """Stands still until it is advanced."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def job(self, late: LateCalls, job_ns: int) -> None:
        """Let a job take so long."""
        late.job_starts()
        self.now_ns += job_ns
        late.function_ended()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def late(clock: Clock) -> LateCalls:
    """Late calls of a worker whose jobs have been short for long."""
    made = LateCalls(clock)
    for _ in range(8 * FORGOTTEN):
        clock.job(made, 1000)
    return made


def test_short_jobs_may_put_off(late: LateCalls, clock: Clock) -> None:
    clock.job(late, SHORT_JOB_NS)
    assert late.is_taking


def test_one_long_job_is_remembered_for_a_while(late: LateCalls, clock: Clock) -> None:
    clock.job(late, 2 * SHORT_JOB_NS)
    taking = []
    for _ in range(2 * FORGOTTEN):
        clock.job(late, 1000)
        taking.append(late.is_taking)
    assert taking == sorted(taking)
    assert taking.index(True) >= FORGOTTEN // 2


def test_the_first_jobs_put_nothing_off(clock: Clock) -> None:
    late = LateCalls(clock)
    clock.job(late, 1000)
    assert not late.is_taking


def test_a_call_waits_for_the_next_job_but_not_for_many(late: LateCalls, clock: Clock) -> None:
    late.add(lambda: None)
    assert late.may_wait
    clock.now_ns += LONGEST_WAIT_NS - 1
    assert late.may_wait
    clock.now_ns += 1
    assert not late.may_wait


def test_without_calls_nothing_waits(late: LateCalls) -> None:
    assert not late.may_wait


def test_a_function_that_runs_puts_nothing_off(late: LateCalls) -> None:
    late.function_ended()
    assert late.is_taking
    assert not late.may_wait
    assert not late.is_taking


def test_all_are_called_even_if_one_raises(
    late: LateCalls, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []

    def broken() -> None:
        raise ValueError("broken")

    late.add(broken)
    late.add(partial(called.append, 1))
    with caplog.at_level(logging.ERROR):
        late.call_all()
    late.call_all()
    assert called == [1]
    assert "put off, and raised" in caplog.text


def test_on_a_thread_of_others_it_is_called_at_once() -> None:
    called: list[int] = []
    call_soon(partial(called.append, 1))
    assert called == [1]


@pytest.fixture
def short_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every job for a short one, and let calls wait for ever, so that no clock decides."""
    module = "aioinfer.executors.late_calls"
    monkeypatch.setattr(f"{module}.SHORT_JOB_NS", 1 << 62)
    monkeypatch.setattr(f"{module}.LONGEST_WAIT_NS", 1 << 62)
    monkeypatch.setattr(f"{module}.FORGOTTEN", 1)


def run_all(executor: StreamsExecutor, thens: list[Callable[[], None]]) -> None:
    """Have all of them in the queue before the first is called, and wait until the last was."""
    gate, over = threading.Event(), threading.Event()

    def wait(_lane: Lane) -> Ready:
        assert gate.wait(WAIT_S)
        return NOW

    def nothing(_lane: Lane) -> Ready:
        return NOW

    executor.run(wait, NOW, lambda ready, error: None)
    for then in thens:
        executor.run(nothing, NOW, lambda ready, error, then=then: then())  # type: ignore[misc]
    executor.run(nothing, NOW, lambda ready, error: over.set())
    gate.set()
    assert over.wait(WAIT_S)


@pytest.mark.usefixtures("short_jobs")
def test_a_worker_calls_when_it_has_no_more_to_do() -> None:
    seen: list[str] = []
    called = threading.Event()

    def late() -> None:
        seen.append("late")
        called.set()

    def first() -> None:
        call_soon(late)

    with StreamsExecutor(StreamsConfig("busy", 1, 1)) as executor:
        run_all(executor, [first, lambda: seen.append("second"), lambda: seen.append("third")])
        assert called.wait(WAIT_S)
    assert seen == ["second", "third", "late"]


@pytest.mark.usefixtures("short_jobs")
def test_a_worker_that_ends_calls_before() -> None:
    called: list[int] = []
    executor = StreamsExecutor(StreamsConfig("ending", 1, 1))
    run_all(executor, [lambda: call_soon(partial(called.append, 1))])
    executor.close()
    assert called == [1]


@pytest.mark.usefixtures("short_jobs")
def test_a_running_function_puts_nothing_off() -> None:
    called: list[bool] = []
    is_over = False

    def function(_lane: Lane) -> Ready:
        nonlocal is_over
        call_soon(lambda: called.append(is_over))
        is_over = True
        return NOW

    with StreamsExecutor(StreamsConfig("running", 1, 1)) as executor:
        run_all(executor, [lambda: None])
        executor.run_and_wait([function, lambda lane: NOW])
    assert called == [False]
