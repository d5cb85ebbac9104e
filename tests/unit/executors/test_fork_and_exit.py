from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from child_process import HAS_FORK, run_script

FORK = pytest.mark.skipif(not HAS_FORK, reason="this system has no fork")

CHILD = """
    import threading
    from functools import partial
    from aioinfer.errors import ClosedError
    from aioinfer.executors import *
    from aioinfer.executors.base import Ready

    refuses = partial(refuses, kind=ClosedError, text="was made before fork; load in the child")

    def ignore(ready, error): pass
"""


def run(script: str, folder: Path) -> str:
    """Run it in a process of its own and return what it printed."""
    return run_script(textwrap.dedent(CHILD) + textwrap.dedent(script), folder).stdout


@FORK
def test_in_a_forked_child_every_executor_refuses_and_close_returns(tmp_path) -> None:
    run(
        """
        device = ManualStreams()
        executors = [
            StreamsExecutor(StreamsConfig("CPU", 2)), ImmediateExecutor("inline"),
            ManualExecutor("manual"), DeviceStreamExecutor(device.stream("upload")),
        ]
        executors[0].run_and_wait([lambda lane: NOW])
        manager = ExecutorManager()
        manager.acquire(StreamsConfig("lent")).run_and_wait([lambda lane: NOW])

        def check():
            for executor in executors:
                refuses(lambda: executor.run(lambda lane: NOW, NOW, ignore))
                refuses(lambda: executor.run(lambda lane: NOW, HostReady(), ignore))
                executor.close()
            refuses(lambda: manager.acquire(StreamsConfig("lent")))
            manager.close()
            with StreamsExecutor(StreamsConfig("CPU")) as own:
                own.run_and_wait([lambda lane: NOW])

        in_child(check)
        executors[0].run_and_wait([lambda lane: NOW])  # the parent goes on
        """,
        tmp_path,
    )


@FORK
def test_a_token_that_fires_in_the_child_settles_what_the_parent_parked(tmp_path) -> None:
    run(
        """
        executor, token, told = StreamsExecutor(StreamsConfig("CPU")), HostReady(), []
        executor.run(lambda lane: NOW, token, lambda ready, error: told.append(error))

        def check():
            token.fire()
            assert len(told) == 1 and isinstance(told[0], ClosedError), told

        executor._parking.changed.acquire()  # as if another thread had held it at the fork
        in_child(check)
        """,
        tmp_path,
    )


@FORK
def test_the_child_of_a_fork_has_a_timer_of_its_own(tmp_path) -> None:
    run(
        """
        parents, fired = process_timer(), threading.Event()
        handle = parents.call_at(parents.now_s() + 3600, lambda: None)

        def check():
            assert process_timer() is not parents
            refuses(lambda: parents.call_at(parents.now_s(), lambda: None))
            assert handle.cancel()
            parents.close()
            fired = threading.Event()
            process_timer().call_at(process_timer().now_s(), fired.set)
            assert fired.wait(20)

        parents._alarms.changed.acquire()
        in_child(check)
        parents._alarms.changed.release()
        parents.call_at(parents.now_s(), fired.set)
        assert fired.wait(20)
        """,
        tmp_path,
    )


@FORK
def test_a_device_event_of_the_parent_fires_with_an_error_in_the_child(tmp_path) -> None:
    run(
        """
        completion = CompletionThread("HAND.0", lambda event: threading.Event().wait())
        event = DeviceEvent(completion, completion.watch)

        def check():
            heard = []
            event.when_ready(heard.append)
            assert isinstance(heard[0], ClosedError), heard

        in_child(check)
        """,
        tmp_path,
    )


def test_exit_with_running_and_queued_work_does_not_hang(tmp_path) -> None:
    printed = run(
        """
        executor, started = StreamsExecutor(StreamsConfig("CPU", 2)), threading.Semaphore(0)

        def forever(lane):
            started.release()
            threading.Event().wait()

        for _ in range(50):
            executor.run(forever, NOW, ignore)
        executor.run(lambda lane: NOW, HostReady(), ignore)
        process_timer().call_at(process_timer().now_s() + 3600, lambda: None)
        completion = CompletionThread("HAND.0", lambda event: threading.Event().wait())
        DeviceEvent(completion, completion.watch).when_ready(lambda error: None)
        started.acquire()
        started.acquire()
        print("main ends")
        """,
        tmp_path,
    )
    assert printed == "main ends\n"
