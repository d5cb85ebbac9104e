from __future__ import annotations

import pytest

from aioinfer.errors import AioInferError, ClosedError
from aioinfer.executors import NOW, HostReady, ManualExecutor


def test_nothing_runs_until_it_is_released(told) -> None:
    compute, calls = ManualExecutor("compute"), []
    compute.run(lambda lane: calls.append(lane.name) or NOW, NOW, told)
    assert repr(compute) == "<ManualExecutor 'compute' 1 waiting>"
    assert calls == []
    compute.release()
    assert calls == ["compute"]
    assert told.only == (NOW, None)
    assert repr(compute) == "<ManualExecutor 'compute' 0 waiting>"


def test_the_next_upload_overlaps_compute(make_chain, make_told) -> None:
    upload, compute = ManualExecutor("upload"), ManualExecutor("compute")
    for _ in range(2):
        make_chain([(upload, lambda lane: NOW), (compute, lambda lane: NOW)], make_told()).start()
    upload.release()
    assert repr(upload) == "<ManualExecutor 'upload' 1 waiting>"
    assert repr(compute) == "<ManualExecutor 'compute' 1 waiting>"


def test_release_takes_the_oldest_first(make_told) -> None:
    executor, order = ManualExecutor("x"), []
    for number in range(3):
        executor.run(lambda lane, n=number: order.append(n) or NOW, NOW, make_told())
    executor.release(2)
    assert order == [0, 1]
    assert executor.waiting_count == 1


def test_what_waits_for_a_token_cannot_be_released_before_it_fires(told, make_told) -> None:
    executor, token, order, second = ManualExecutor("x"), HostReady(), [], make_told()
    executor.run(lambda lane: order.append("held") or NOW, token, told)
    executor.run(lambda lane: order.append("free") or NOW, NOW, second)
    assert repr(executor) == "<ManualExecutor 'x' 1 waiting, 1 held by a token>"
    executor.release()
    with pytest.raises(AioInferError, match="nothing to release"):
        executor.release()
    token.fire()
    assert repr(executor) == "<ManualExecutor 'x' 1 waiting>"
    executor.release()
    assert order == ["free", "held"]


def test_a_failed_token_ends_what_waits_for_it(told) -> None:
    executor, token, error = ManualExecutor("x"), HostReady(), OSError("device")
    executor.run(lambda lane: NOW, token, told)
    token.fire(error)
    assert told.only == (NOW, error)
    assert executor.waiting_count == executor.held_count == 0


def test_fail_ends_the_next_without_calling_it(told) -> None:
    executor, error, calls = ManualExecutor("x"), ValueError("asked for"), []
    executor.run(lambda lane: calls.append(1) or NOW, NOW, told)
    executor.fail(error)
    assert told.only == (NOW, error)
    assert calls == []
    with pytest.raises(AioInferError, match="nothing to fail"):
        executor.fail(error)


def test_close_runs_what_waits_and_refuses_what_is_held(told, make_told) -> None:
    executor, token, held = ManualExecutor("x"), HostReady(), make_told()
    executor.run(lambda lane: NOW, NOW, told)
    executor.run(lambda lane: NOW, token, held)
    executor.close()
    executor.close()
    assert told.only == (NOW, None)
    assert held.only[0] is token
    assert isinstance(held.error, ClosedError)
    with pytest.raises(ClosedError):
        executor.run(lambda lane: NOW, NOW, make_told())


def test_closed_without_draining_it_calls_nothing(told) -> None:
    executor, calls = ManualExecutor("x"), []
    executor.run(lambda lane: calls.append(1) or NOW, NOW, told)
    executor.close(drain=False)
    assert isinstance(told.error, ClosedError)
    assert calls == []
