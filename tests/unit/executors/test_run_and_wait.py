from __future__ import annotations

import gc
import threading
import weakref

import pytest

from aioinfer.errors import ClosedError, RequestStateError
from aioinfer.executors import NOW, HostReady, ImmediateExecutor, StreamsConfig, StreamsExecutor


class Work:
    """A function that can be watched being forgotten."""

    def __init__(self, *, is_bad: bool = False) -> None:
        self.is_bad = is_bad

    def __call__(self, lane):
        if self.is_bad:
            raise ValueError("bad")
        return NOW


def test_ten_raising_tasks_are_all_called_and_the_first_in_list_order_is_raised() -> None:
    calls: list[int] = []

    def task(number):
        def function(lane):
            calls.append(number)
            raise ValueError(number)

        return function

    with (
        StreamsExecutor(StreamsConfig("CPU", 4)) as executor,
        pytest.raises(ValueError, match=r"^0$"),
    ):
        executor.run_and_wait([task(number) for number in range(10)])
    assert sorted(calls) == list(range(10))


def test_it_waits_for_all_before_it_raises() -> None:
    failed, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def fails(lane):
        failed.set()
        raise ValueError("early")

    def lasts(lane):
        assert may_end.wait(20)
        has_ended.set()
        return NOW

    def release() -> None:
        failed.wait(20)
        may_end.set()

    helper = threading.Thread(target=release, daemon=True)
    helper.start()
    with StreamsExecutor(StreamsConfig("CPU", 2)) as executor:
        with pytest.raises(ValueError, match="early"):
            executor.run_and_wait([fails, lasts])
        assert has_ended.is_set()
    helper.join()


def test_it_waits_for_the_tokens_and_raises_their_errors() -> None:
    token = HostReady()

    def fire_then_return(lane):
        token.fire(OSError("device"))
        return token

    with pytest.raises(OSError, match="device"):
        ImmediateExecutor().run_and_wait([fire_then_return])


@pytest.mark.parametrize("is_bad", [False, True])
def test_it_keeps_nothing_alive(is_bad: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        with StreamsExecutor(StreamsConfig("CPU")) as executor:
            work = Work(is_bad=is_bad)
            gone = weakref.ref(work)
            try:
                executor.run_and_wait([work])
            except ValueError:
                pass
            executor.run_and_wait([lambda lane: NOW])  # the worker has let go of what came before
            del work
            assert gone() is None
    finally:
        gc.enable()


def test_an_error_that_is_kept_does_not_keep_who_was_told() -> None:
    class Then:
        def __call__(self, ready, error) -> None:
            kept.append(error)

    kept: list[BaseException] = []
    then = Then()
    gone = weakref.ref(then)
    with StreamsExecutor(StreamsConfig("CPU")) as executor:
        executor.run(Work(is_bad=True), NOW, then)
        del then
        executor.run_and_wait([lambda lane: NOW])  # the worker has let go of what came before
        assert kept[0].__traceback__ is not None
        assert gone() is None


def test_a_closed_executor_refuses_each_of_them() -> None:
    executor = ImmediateExecutor("closed")
    executor.close()
    with pytest.raises(ClosedError, match="'closed' is closed"):
        executor.run_and_wait([lambda lane: NOW, lambda lane: NOW])


def test_a_worker_may_not_wait_for_its_own_queue() -> None:
    with StreamsExecutor(StreamsConfig("CPU")) as executor:

        def nested(lane):
            executor.run_and_wait([lambda lane: NOW])
            return NOW

        with pytest.raises(RequestStateError, match=r"run_and_wait would block 'CPU.0'"):
            executor.run_and_wait([nested])
