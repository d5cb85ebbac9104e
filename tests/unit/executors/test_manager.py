from __future__ import annotations

import threading

import pytest

from aioinfer.errors import AioInferError, ClosedError, RequestStateError
from aioinfer.executors import NOW, ExecutorManager, StreamsConfig, StreamsExecutor, hop


def test_there_is_one_executor_per_configuration() -> None:
    manager = ExecutorManager()
    first = manager.acquire(StreamsConfig("CPU", 2))
    again = manager.acquire(StreamsConfig("CPU", 2))
    other = manager.acquire(StreamsConfig("CPU", 1))
    assert first is again
    assert first is not other
    assert manager.executor_count == 2
    manager.close()
    assert manager.executor_count == 0


def test_the_last_lease_closes_the_executor(told) -> None:
    manager = ExecutorManager()
    executor = manager.acquire(StreamsConfig("CPU"))
    manager.acquire(StreamsConfig("CPU"))
    manager.release(executor)
    executor.run(lambda lane: NOW, NOW, told)
    manager.release(executor)
    assert told.only == (NOW, None)
    with pytest.raises(ClosedError):
        executor.run(lambda lane: NOW, NOW, told)
    assert manager.executor_count == 0
    assert manager.acquire(StreamsConfig("CPU")) is not executor
    manager.close()


def test_what_is_not_lent_out_cannot_be_released() -> None:
    manager = ExecutorManager()
    executor = manager.acquire(StreamsConfig("CPU"))
    with pytest.raises(AioInferError, match="not lent out"):
        manager.release(StreamsExecutor(StreamsConfig("CPU")))
    manager.release(executor)
    with pytest.raises(AioInferError, match="release each lease once"):
        manager.release(executor)
    manager.close()


def test_close_ends_what_is_still_lent_out_and_later_releases_are_fine() -> None:
    manager = ExecutorManager()
    executor = manager.acquire(StreamsConfig("CPU"))
    executor.run_and_wait([lambda lane: NOW])
    manager.close()
    manager.close()
    manager.release(executor)
    with pytest.raises(ClosedError, match="closed and lends no 'CPU'"):
        manager.acquire(StreamsConfig("CPU"))
    assert repr(manager) == "<ExecutorManager closed>"


def test_the_last_lease_may_end_on_the_executors_own_thread(told) -> None:
    manager = ExecutorManager()
    executor = manager.acquire(StreamsConfig("callback"))

    def drops_the_network(lane):
        manager.release(executor)
        return NOW

    executor.run(drops_the_network, NOW, told)
    assert told.wait() == (NOW, None)
    manager.close()  # waits for the thread that closes it
    with pytest.raises(ClosedError):
        executor.run(drops_the_network, NOW, told)


def test_inside_a_hand_over_the_last_release_does_not_block_either() -> None:
    manager = ExecutorManager()
    executor = manager.acquire(StreamsConfig("CPU"))
    executor.run_and_wait([lambda lane: NOW])
    hop(manager.release, executor)
    assert manager.executor_count == 0
    manager.close()


def test_close_refuses_on_an_own_thread() -> None:
    manager = ExecutorManager()
    executor = manager.acquire(StreamsConfig("CPU"))

    def closes(lane):
        manager.close()
        return NOW

    with pytest.raises(RequestStateError, match="closing the executor manager"):
        executor.run_and_wait([closes])
    manager.close()


def test_threads_that_acquire_and_release_at_once_end_with_none_lent_out() -> None:
    manager, barrier = ExecutorManager(), threading.Barrier(8)
    failures: list[BaseException] = []

    def work(index: int) -> None:
        barrier.wait()
        try:
            for _ in range(30):
                executor = manager.acquire(StreamsConfig(f"CPU.{index % 2}"))
                executor.run_and_wait([lambda lane: NOW])
                manager.release(executor)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert manager.executor_count == 0
    manager.close()
