"""Executors, timers and errors where the process has run out of threads, memory or files."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from aioinfer.errors import DeviceError
from aioinfer.executors import (
    NOW,
    CompletionThread,
    ExecutorManager,
    Lane,
    ManualStreams,
    Ready,
    StreamsConfig,
    StreamsExecutor,
    Timer,
    find_shortage,
    is_shortage,
    mark_own_thread,
    shortage_as_error,
)
from aioinfer.executors.shortage import check_memory
from child_process import run_script

WAIT_S = 20.0


@pytest.fixture
def few_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Allow this number of further threads to start, until it is called again."""
    left = [1000]
    start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)
    return lambda count: left.__setitem__(0, count)


def run(executor: StreamsExecutor) -> str:
    """Run a function and return the name of the lane that it was given."""
    seen: Future[str] = Future()

    def function(lane: Lane) -> Ready:
        seen.set_result(lane.name)
        return NOW

    executor.run(function, NOW, lambda _ready, _error: None)
    return seen.result(WAIT_S)


@pytest.mark.parametrize("started", [0, 1, 2])
def test_streams_of_which_not_all_start_refuse_the_run_and_start_later(
    few_threads: Callable[[int], None], started: int
) -> None:
    executor = StreamsExecutor(StreamsConfig("three", stream_count=3))
    calls: list[str] = []
    few_threads(started)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"'three.\d': no thread .* can be started .*ulimit"):
            executor.run(lambda lane: NOW, NOW, lambda _ready, _error: calls.append("told"))
        few_threads(0)
    assert calls == []
    assert executor.waiting_count == 0
    few_threads(3 - started)
    assert run(executor).startswith("three.")
    executor.close()


def test_streams_of_which_not_all_have_started_can_be_closed(
    few_threads: Callable[[int], None],
) -> None:
    executor = StreamsExecutor(StreamsConfig("two", stream_count=2))
    few_threads(1)
    with pytest.raises(DeviceError):
        executor.run(lambda lane: NOW, NOW, lambda _ready, _error: None)
    executor.close()
    assert all(not thread.name.startswith("two.") for thread in threading.enumerate())


def test_a_timer_that_cannot_start_keeps_no_alarm_and_starts_with_the_next(
    few_threads: Callable[[int], None],
) -> None:
    timer = Timer("late")
    fired = threading.Event()
    few_threads(0)
    with pytest.raises(DeviceError, match="starting thread 'late'"):
        timer.call_at(0.0, fired.set)
    assert repr(timer) == "<Timer 'late' 0 set>"
    few_threads(1)
    timer.call_at(0.0, fired.set)
    assert fired.wait(WAIT_S)
    timer.close()


def test_a_timer_without_memory_to_sleep_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer("short")
    first, second = threading.Event(), threading.Event()
    timer.call_at(0.0, first.set)
    assert first.wait(WAIT_S)
    left = [3]
    wait_for_due = timer._wait_for_due

    def refuse() -> Callable[[], None] | None:
        if left[0]:
            left[0] -= 1
            raise RuntimeError("can't allocate lock")
        return wait_for_due()

    monkeypatch.setattr(timer, "_wait_for_due", refuse)
    timer.call_at(timer.now_s(), lambda: None)  # ends the wait that is under way
    timer.call_at(timer.now_s(), second.set)
    assert second.wait(WAIT_S)
    timer.close()
    assert left == [0]


def test_an_executor_that_no_thread_can_close_is_closed_by_who_may_block(
    few_threads: Callable[[int], None],
) -> None:
    manager = ExecutorManager()
    first, second = (manager.acquire(StreamsConfig(name)) for name in ("first", "second"))
    run(first)

    def release() -> None:
        mark_own_thread()
        few_threads(0)
        manager.release(first)

    own = threading.Thread(target=release)
    own.start()
    own.join(WAIT_S)
    assert any(thread.name == "first.0" for thread in threading.enumerate())
    manager.release(second)
    assert all(thread.name != "first.0" for thread in threading.enumerate())
    manager.close()


def test_an_event_fires_where_its_device_can_start_no_thread(
    few_threads: Callable[[int], None],
) -> None:
    few_threads(0)
    waited: list[object] = []
    thread = CompletionThread("completion", waited.append)
    device = ManualStreams()
    event = device.stream("a").record_event()
    thread.watch(event)
    assert waited == [event]
    assert event.is_ready
    thread.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is Linux's")
def test_a_thread_whose_stack_takes_the_last_memory_is_refused_and_not_waited_for(
    tmp_path: Path,
) -> None:
    run_script(
        """
        import resource
        import threading
        from aioinfer.errors import DeviceError
        from aioinfer.executors.shortage import start_thread

        STACK_BYTES = 1 << 20
        threading.stack_size(STACK_BYTES)
        outcomes = []
        for more_kib in (*range(0, 64, 4), 32 << 10):
            thread = threading.Thread(target=int)
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * resource.getpagesize()
            limit = now + STACK_BYTES + more_kib * 1024
            resource.setrlimit(resource.RLIMIT_AS, (limit, -1))
            try:
                start_thread(thread)
            except DeviceError as error:
                outcomes.append(error.resource)
            else:
                outcomes.append("started")
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert set(outcomes[:-1]) <= {"memory", "threads"}, outcomes
        assert outcomes[-1] == "started", outcomes
        """,
        tmp_path,
    )


def test_memory_that_is_not_to_be_had_is_an_error() -> None:
    check_memory(1 << 20)
    with pytest.raises(MemoryError, match="MiB cannot be had"):
        check_memory(1 << 60)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError("Unable to allocate 3.00 GiB"), "not enough memory (Unable to allocate 3.00"),
        (MemoryError(), "x: there is not enough memory; use a smaller model"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is not enough memory ("),
        (OSError(errno.EMFILE, "Too many open files"), "may open no more files ("),
        (OSError(errno.ENFILE, "Too many open files in system"), "may open no more files ("),
        (OSError("libdnnl.so: cannot open: Too many open files"), "with 'ulimit -n'"),
        (ImportError("lib.so: Cannot allocate memory"), "there is not enough memory ("),
        (OSError("libdnnl.so: failed to map segment from shared object"), "not enough memory ("),
        (RuntimeError("can't allocate lock"), "there is not enough memory ("),
        (RuntimeError("can't start new thread"), "no thread or process can be started ("),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u"),
    ],
)
def test_want_of_a_resource_is_named_with_the_way_out(error: Exception, text: str) -> None:
    found = find_shortage(error, "x")
    assert found is not None
    assert text in str(found)
    wrapped = DeviceError("it cannot start")
    wrapped.__cause__ = error
    assert is_shortage(wrapped)
    assert find_shortage(wrapped, "x") is wrapped


def test_other_errors_are_no_shortage() -> None:
    refused = "x.so: failed to map segment from shared object: Operation not permitted"
    for error in (
        ValueError("Too many open files"),
        FileNotFoundError(2, "no"),
        KeyError("m"),
        OSError(refused),  # a folder that is mounted noexec
    ):
        assert find_shortage(error, "x") is None
        with pytest.raises(type(error)), shortage_as_error("x"):
            raise error
    assert not is_shortage(None)


def test_a_shortage_is_chained_to_what_caused_it() -> None:
    with pytest.raises(DeviceError) as raised, shortage_as_error("reading 'm.onnx'"):
        raise MemoryError("1 GiB")
    assert isinstance(raised.value.__cause__, MemoryError)
    assert str(raised.value).startswith("reading 'm.onnx': there is not enough memory (1 GiB)")
