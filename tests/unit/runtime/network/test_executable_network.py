"""A network and its slots: what a backend or a caller gets wrong costs one run, never a slot."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    PropertyError,
    RequestCancelledError,
)
from aioinfer.executors import HostReady, Ready
from aioinfer.runtime.runs.bindings import Bindings
from aioinfer.runtime.runs.stage import Stop
from aioinfer.testing import MockDevices
from unit.runtime.held_runs import X, finish, started
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0  # a bound for what must happen; never slept through
SLOT = "aioinfer.runtime.testing.mock_plugin._HeldSlot"


def test_a_slot_that_cannot_start_fails_its_run_and_comes_back(
    held: MockDevices, network: aioinfer.ExecutableNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> Any:
        raise ValueError("no stages")

    request = network.create_infer_request()
    with monkeypatch.context() as patched:
        patched.setattr(f"{SLOT}.start", start)
        for _ in range(held[0].slot_count + 1):
            request.start_async(X)
            with pytest.raises(ValueError, match="no stages"):
                request.wait()
    request.start_async(X)
    finish(held)
    assert request.wait()
    np.testing.assert_array_equal(request.results["y"], expected(X))
    assert network.statistics().running_run_count == 0


def test_a_slot_that_cannot_let_go_is_logged_and_takes_the_next_run(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def release(*_: Any) -> None:
        raise ValueError("stuck")

    requests = [network.create_infer_request() for _ in range(held[0].slot_count + 1)]
    with monkeypatch.context() as patched:
        patched.setattr(f"{SLOT}.release", release)
        for request in requests:
            request.start_async(X)
        finish(held)
        for request in requests:
            assert request.wait()
    assert "a slot of network 'tiny' on MOCK.0 could not be released" in caplog.text
    assert network.statistics().finished_request_count == len(requests)


def test_a_run_dropped_from_the_queue_hands_on_the_token_that_it_waited_for(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    started(network, held[0].slot_count)
    told: list[tuple[Ready, BaseException | None]] = []
    after, stop = HostReady(), Stop()
    bindings: Bindings = network.make_run({"x": X}).bindings
    network.start_run(bindings, stop, after, lambda ready, error: told.append((ready, error)))
    stop.set(RequestCancelledError("enough"))
    assert told == [(after, stop.error)]
    finish(held)


@pytest.mark.parametrize("deadline_s", [float("nan"), "soon", np.ones(2)])
def test_a_deadline_that_is_no_time_is_refused_and_the_request_stays_usable(
    held: MockDevices, network: aioinfer.ExecutableNetwork, deadline_s: Any
) -> None:
    request = network.create_infer_request()
    with pytest.raises(PropertyError, match=r"deadline_s is .*; give seconds from now"):
        request.start_async(X, deadline_s=deadline_s)
    request.start_async(X, deadline_s=float("inf"))
    finish(held)
    assert request.wait()


@pytest.mark.parametrize("priority", [1.5, "high", None])
def test_a_priority_that_is_no_whole_number_is_refused_and_the_request_stays_usable(
    held: MockDevices, network: aioinfer.ExecutableNetwork, priority: Any
) -> None:
    request = network.create_infer_request()
    with pytest.raises(PropertyError, match=r"priority is .*; give a whole number"):
        request.start_async(X, priority=priority)
    request.start_async(X, priority=np.int64(3))
    finish(held)
    assert request.wait()


def test_an_infinite_timeout_is_no_timeout(
    held: MockDevices, network: aioinfer.ExecutableNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = network.create_infer_request()
    request.start_async(X)
    run, is_waiting = request._run, threading.Event()
    assert run is not None
    when_ended = run.when_ended

    def listen(call: Callable[[], None]) -> None:
        when_ended(call)
        is_waiting.set()

    monkeypatch.setattr(run, "when_ended", listen)
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(request.wait, float("inf"))
        assert is_waiting.wait(WAIT_S)
        finish(held)
        assert waited.result(WAIT_S) is True


def test_the_log_of_an_error_that_nobody_waited_for_names_the_request(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    _, second = network.create_infer_request(), network.create_infer_request()
    with caplog.at_level(logging.ERROR, "aioinfer"):
        second.start_async(X)
        held[0].held.fail(ValueError("lost"))
        del second
        gc.collect()
    assert "an error of request 1 of 'tiny' on MOCK.0 was never retrieved" in caplog.text


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "soon"])
def test_a_close_that_cannot_be_timed_is_refused(
    network: aioinfer.ExecutableNetwork, timeout_s: Any
) -> None:
    with pytest.raises(PropertyError, match=r"timeout_s is .*; .* 0 or more, or None") as caught:
        network.close(timeout_s=timeout_s)
    assert (caught.value.key, caught.value.network) == ("timeout_s", "tiny")
    assert not network.is_closed


def test_after_a_fork_a_network_of_the_parent_tells_nothing(
    network: aioinfer.ExecutableNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as forked:
        forked.setattr(network._process, "is_current", False)
        for ask in (
            lambda: network.get_metric("NETWORK_NAME"),
            lambda: network.get_config("PERF_COUNT"),
            network.trace,
            network.statistics,
        ):
            with pytest.raises(ClosedError, match="made before fork; load in the child"):
                ask()
    assert network.get_metric("NETWORK_NAME") == "tiny"


async def test_close_says_whether_the_device_was_given_back(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    request = network.create_infer_request()
    request.start_async(X)
    assert network.close(timeout_s=0) is False
    assert await network.aclose(timeout_s=0.01) is False
    assert core.close(timeout_s=0) is False
    assert await core.aclose(timeout_s=0.01) is False
    held[0].held.release()
    assert await network.aclose(timeout_s=WAIT_S) is True
    assert network.close(timeout_s=0) is True
    assert await core.aclose(timeout_s=WAIT_S) is True
    assert core.close() is True


async def test_a_core_that_is_not_drained_ends_its_runs(
    core: aioinfer.Core, held: MockDevices
) -> None:
    request = core.load_network(tiny_model(), "MOCK.0").create_infer_request()
    request.start_async(X)
    assert await core.aclose(drain=False, timeout_s=0) is False
    with pytest.raises(ClosedError):
        _ = request.results
    held[0].held.release()
    assert core.close(timeout_s=WAIT_S) is True
    assert not [item for item in threading.enumerate() if item.name.startswith("aioinfer.close.")]
