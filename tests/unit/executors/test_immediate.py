from __future__ import annotations

import threading

import pytest

from aioinfer.errors import AioInferError, ClosedError
from aioinfer.executors import NOW, HostReady, ImmediateExecutor


def test_it_runs_inside_run_when_the_token_has_fired(told) -> None:
    threads: list[int] = []

    def function(lane):
        threads.append(threading.get_ident())
        return NOW

    ImmediateExecutor().run(function, NOW, told)
    assert told.only == (NOW, None)
    assert threads == [threading.get_ident()]


def test_it_runs_on_the_thread_that_fires_the_token(told) -> None:
    token, threads = HostReady(), []

    def function(lane):
        threads.append(threading.current_thread())
        return NOW

    ImmediateExecutor().run(function, token, told)
    assert told.calls == []
    firing = threading.Thread(target=token.fire, daemon=True)
    firing.start()
    firing.join()
    assert told.only == (NOW, None)
    assert threads == [firing]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_is_raised_is_handed_on(told, error) -> None:
    def function(lane):
        raise error

    ImmediateExecutor().run(function, NOW, told)
    assert told.only == (NOW, error)


def test_a_failed_token_means_that_the_function_is_not_called(told) -> None:
    token, error, calls = HostReady(), OSError("device"), []
    ImmediateExecutor().run(lambda lane: calls.append(lane) or NOW, token, told)
    token.fire(error)
    assert told.only == (NOW, error)
    assert calls == []


def test_a_function_that_returns_no_token_is_an_error_that_says_so(told) -> None:
    ImmediateExecutor().run(lambda lane: None, NOW, told)
    assert isinstance(told.error, AioInferError)
    assert "returned None" in str(told.error)
    assert "return NOW" in str(told.error)


def test_closed_it_refuses_and_keeps_nothing(told) -> None:
    executor = ImmediateExecutor("inline")
    executor.close()
    executor.close()
    with pytest.raises(ClosedError, match="executor 'inline' is closed"):
        executor.run(lambda lane: NOW, NOW, told)
    with pytest.raises(ClosedError):
        executor.run(lambda lane: NOW, HostReady(), told)
    assert told.calls == []
    assert repr(executor) == "<ImmediateExecutor 'inline' closed>"


def test_closed_without_draining_it_hands_the_unfired_token_on(told) -> None:
    executor, token, calls = ImmediateExecutor(), HostReady(), []
    executor.run(lambda lane: calls.append(lane) or NOW, token, told)
    assert repr(executor) == "<ImmediateExecutor 'immediate' 1 held>"
    executor.close(drain=False)
    ready, error = told.only
    assert ready is token
    assert isinstance(error, ClosedError)
    token.fire()
    assert len(told.calls) == 1
    assert calls == []


def test_a_token_that_cannot_be_asked_is_refused_and_nothing_is_kept(told) -> None:
    class Broken(HostReady):
        def when_ready(self, call):
            raise OSError("no driver")

    executor = ImmediateExecutor()
    with pytest.raises(OSError, match="no driver"):
        executor.run(lambda lane: NOW, Broken(), told)
    executor.close()  # does not wait for it
    assert told.calls == []
