"""DEFAULT_DEADLINE_S, deadlines that are given, and no deadline at all; time is the test's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import DeadlineExceededError, PropertyError
from aioinfer.runtime.loops.inline_turn import InlineTurn, threads
from aioinfer.runtime.network.deadlines import deadline_from_now
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin
from unit.runtime.models import expected, tiny_model

X = np.array([[-1, 2, 3]], np.float32)


@pytest.fixture
def network(core: aioinfer.Core, held: MockDevices) -> aioinfer.ExecutableNetwork:
    loaded = core.load_network(tiny_model(), "MOCK.0", {"DEFAULT_DEADLINE_S": "2.5"})
    loaded.clock = VirtualTimer()
    return loaded


def advance(network: aioinfer.ExecutableNetwork, seconds: float) -> None:
    assert isinstance(network.clock, VirtualTimer)
    network.clock.advance(seconds)


@pytest.mark.parametrize(
    ("deadline_s", "at_s"),
    [(0, 10.0), (5, 15.0), (-1, 9.0), (math.inf, math.inf), (np.float32(0.5), 10.5)],
)
def test_a_deadline_counts_from_now(deadline_s: Any, at_s: float) -> None:
    deadline = deadline_from_now(VirtualTimer(10.0), deadline_s, {})
    assert (deadline.at_s, deadline.given_s) == (at_s, deadline_s)


@pytest.mark.parametrize("deadline_s", [math.nan, "soon", "5", None, np.ones(2), [1], 10**400])
def test_what_is_no_time_is_refused(deadline_s: Any) -> None:
    with pytest.raises(PropertyError, match="give seconds from now, infinity for no deadline"):
        deadline_from_now(VirtualTimer(), deadline_s, {})


def test_the_default_counts_from_each_start(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    first, second = network.create_infer_request(), network.create_infer_request()
    first.start_async(X)
    advance(network, 1.0)
    second.start_async(X)
    advance(network, 1.5)
    with pytest.raises(DeadlineExceededError):
        _ = first.results
    assert "busy" in repr(second)
    held[0].held.release(2)
    assert second.wait()
    assert network.get_config("DEFAULT_DEADLINE_S") == 2.5


def test_a_deadline_that_is_given_takes_the_place_of_the_default(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    shorter, longer, never = (network.create_infer_request() for _ in range(3))
    shorter.start_async(X, deadline_s=1.0)
    longer.start_async(X, deadline_s=4.0)
    never.start_async(X, deadline_s=math.inf)
    told = []
    for _ in range(5):
        advance(network, 1.0)
        told.append([request.wait_expired() for request in map(Watched, (shorter, longer, never))])
    assert told == [[True, False, False]] * 3 + [[True, True, False]] * 2
    while held[0].held.waiting_count:
        held[0].held.release()
    assert never.wait()


class Watched:
    def __init__(self, request: aioinfer.InferRequest) -> None:
        self.request = request

    def wait_expired(self) -> bool:
        try:
            _ = self.request.results
        except DeadlineExceededError:
            return True
        except aioinfer.errors.RequestStateError:
            return False
        return False


@pytest.mark.parametrize("which", ["request", "network"])
async def test_awaited_runs_have_the_default_deadline_too(
    held: MockDevices, network: aioinfer.ExecutableNetwork, which: str
) -> None:
    infer = network.infer if which == "network" else network.create_infer_request().infer
    task = asyncio.create_task(infer(X))
    await asyncio.sleep(0)
    advance(network, 2.5)
    with pytest.raises(DeadlineExceededError):
        await task
    held[0].held.release()
    task = asyncio.create_task(infer(X, deadline_s=math.inf))
    await asyncio.sleep(0)
    advance(network, 100.0)
    held[0].held.release()
    np.testing.assert_array_equal((await task)["y"], expected(X))


def test_infer_sync_has_it_and_can_be_given_another(
    held: MockDevices, network: aioinfer.ExecutableNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = network.create_infer_request()
    run = held[0].held.run

    def run_late(seconds: float) -> Callable[..., None]:
        def late(*args: Any) -> None:
            run(*args)
            advance(network, seconds)

        return late

    monkeypatch.setattr(held[0].held, "run", run_late(2.5))
    with pytest.raises(DeadlineExceededError):
        request.infer_sync(X)
    held[0].held.release()
    monkeypatch.setattr(held[0].held, "run", run_late(1.0))
    with pytest.raises(DeadlineExceededError):
        request.infer_sync(X, deadline_s=1.0)


def test_the_parts_of_a_hetero_network_have_no_deadline_of_their_own(
    core: aioinfer.Core, held: MockDevices
) -> None:
    config = {"DEFAULT_DEADLINE_S": 2, "AFFINITY": {"relu": "MOCK.0", "add": "MOCK.1"}}
    network = core.load_network(tiny_model(), "HETERO:MOCK.0,MOCK.1", config)
    clock = network.clock = VirtualTimer()
    assert [part.default_deadline_s for part in network.networks] == [None, None]
    request = network.create_infer_request()
    request.start_async(X)
    clock.advance(2.0)
    with pytest.raises(DeadlineExceededError):
        _ = request.results
    held[0].held.release()
    assert held[1].held.waiting_count == 0, "nothing of it reaches the second device"


class TimeIsUp:
    """Moves the network's clock on while a run computes."""

    def __init__(self, network: InlineNetwork, seconds: float) -> None:
        self.network, self.seconds = network, seconds

    def __call__(self, *_: Any) -> None:
        advance(self.network, self.seconds)


@pytest.mark.parametrize("which", ["request", "network"])
async def test_a_run_that_stays_with_its_caller_is_told_of_its_default_deadline(
    core: aioinfer.Core, which: str
) -> None:
    core.register_plugin("INLINE", InlinePlugin)
    config = {"DEFAULT_DEADLINE_S": 1, "INLINE_THRESHOLD_US": 60_000_000}
    network = core.load_network(tiny_model(), "INLINE", config)
    assert isinstance(network, InlineNetwork)
    network.clock = VirtualTimer()
    assert network.admission.gate is not None
    network.admission.gate.time_of({"x": X}).is_short = True
    threads.turn = InlineTurn()
    infer = network.infer if which == "network" else network.create_infer_request().infer
    network.compute = TimeIsUp(network, 0.5)
    np.testing.assert_array_equal((await infer(X))["y"], X * 2)
    network.compute = TimeIsUp(network, 1.5)
    with pytest.raises(DeadlineExceededError):
        await infer(X)
    np.testing.assert_array_equal((await infer(X, deadline_s=math.inf))["y"], X * 2)
    assert network.statistics().expired_request_count == 1


@pytest.mark.parametrize("given", ["soon", -1, math.nan, math.inf, True, None, [1.0]])
def test_a_bad_default_is_refused(core: aioinfer.Core, held: MockDevices, given: Any) -> None:
    with pytest.raises(PropertyError, match="DEFAULT_DEADLINE_S: a number of seconds, 0 or more"):
        core.load_network(tiny_model(), "MOCK.0", {"DEFAULT_DEADLINE_S": given})


def test_without_the_property_a_run_takes_its_time(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    clock = network.clock = VirtualTimer()
    request = network.create_infer_request()
    request.start_async(X)
    clock.advance(1e9)
    assert "0 set" in repr(clock)
    held[0].held.release()
    assert request.wait()
