"""The way into a network: who is refused by a full queue, who waits, and who has the next slot."""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeviceError,
    OverloadedError,
    PropertyError,
    RequestCancelledError,
)
from aioinfer.runtime.runs.admission import MOST_OVERTAKINGS
from aioinfer.runtime.runs.run import Run
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.held_runs import X, finish, started
from unit.runtime.inline_plugin import InlineNetwork, InlinePlugin
from unit.runtime.models import expected, tiny_model

WAIT_S = 20.0  # a bound for what must happen; never slept through
SPLIT = {"AFFINITY": {"relu": "MOCK.0", "add": "MOCK.1"}}


@pytest.fixture
def network(core: aioinfer.Core, held: MockDevices) -> aioinfer.ExecutableNetwork:
    """Two slots, and room for one run that waits."""
    return core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 1})


def fill(network: aioinfer.ExecutableNetwork) -> list[aioinfer.InferRequest]:
    requests = started(network, 3)
    return requests


def counts(network: aioinfer.ExecutableNetwork) -> tuple[int, int]:
    statistics = network.statistics()
    return statistics.finished_request_count, statistics.refused_request_count


ENTRIES: dict[str, Callable[[aioinfer.InferRequest], Any]] = {
    "start_async": lambda request: request.start_async(X),
    "infer_sync": lambda request: request.infer_sync(X),
    "infer": lambda request: asyncio.run(request.infer(X)),
    "network.infer": lambda request: asyncio.run(request._network.infer(X)),
}


@pytest.mark.parametrize("call", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("place", ["at the door", "in the queue", "at its begin"])
def test_a_run_that_finds_no_memory_takes_no_slot(
    held: MockDevices,
    network: aioinfer.ExecutableNetwork,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    call: Callable[..., Any],
) -> None:
    running = started(network, 2) if place == "in the queue" else []
    request = network.create_infer_request()
    owner, name = {
        "at the door": (network.admission.arrivals, "arrive"),
        "in the queue": (heapq, "heappush"),
        "at its begin": (Run, "_begin"),
    }[place]
    with monkeypatch.context() as scarcity:
        scarcity.setattr(owner, name, _no_memory)
        for _ in range(3):
            with pytest.raises((MemoryError, DeviceError)):
                call(request)
    assert len(network.admission.runs) == len(running)
    finish(held)
    following = started(network, 2)
    finish(held)
    for item in (*running, *following):
        assert item.wait(WAIT_S)


def _no_memory(*_args: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("call", ENTRIES.values(), ids=ENTRIES)
def test_one_too_many_is_refused_at_once_and_may_come_again(
    held: MockDevices, network: aioinfer.ExecutableNetwork, call: Callable[..., Any]
) -> None:
    running, late = fill(network), network.create_infer_request()
    message = "'tiny' on MOCK.0 has 1 runs waiting .* as many as MAX_QUEUED_REQUESTS allows; come"
    with pytest.raises(OverloadedError, match=message):
        call(late)
    assert "idle" in repr(late)
    assert late.wait() is False, "as if it had never been started"
    assert network.admission.run_count == 3
    finish(held)
    assert all(request.wait() for request in running)
    assert counts(network) == (3, 1)
    late.start_async(X)
    finish(held)
    np.testing.assert_array_equal(late.results["y"], expected(X))
    assert len(network.admission.runs) == 0


def test_a_refused_request_still_has_what_its_last_run_left(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    request = network.create_infer_request()
    request.start_async(X, userdata="first")
    finish(held)
    fill(network)
    with pytest.raises(OverloadedError):
        request.start_async(X + 1, userdata="second")
    assert request.wait() is True
    assert request.userdata == "first"
    np.testing.assert_array_equal(request.results["y"], expected(X))


def test_a_refused_run_calls_no_callback_and_leaves_no_alarm_and_no_word(
    held: MockDevices, network: aioinfer.ExecutableNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    clock = network.clock = VirtualTimer()
    fill(network)
    quiet, request, told = network.create_infer_request(), network.create_infer_request(), []
    request.set_callback(lambda _request, error: told.append(error))
    gc.collect()  # what other tests have left may have something to say
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "aioinfer"):
        for refused in (quiet, request):
            for deadline_s in (0.0, 5.0):  # the first is late before it is refused
                with pytest.raises(OverloadedError):
                    refused.start_async(X, deadline_s=deadline_s)
        clock.advance(10.0)
        del quiet, request, refused
        gc.collect()
    finish(held)
    network.close()
    assert told == []
    assert caplog.text == ""
    statistics = network.statistics()
    assert (statistics.refused_request_count, statistics.expired_request_count) == (4, 0)


def test_who_stops_waiting_makes_room(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    *_, waiting = fill(network)
    waiting.cancel()
    next_one = network.create_infer_request()
    next_one.start_async(X)
    with pytest.raises(RequestCancelledError):
        waiting.wait()
    finish(held)
    assert next_one.wait()
    assert counts(network) == (3, 0)


def test_a_high_priority_is_refused_as_well(network: aioinfer.ExecutableNetwork) -> None:
    fill(network)
    with pytest.raises(OverloadedError):
        network.create_infer_request().start_async(X, priority=9)


def test_urgent_requests_that_keep_coming_starve_nobody(
    core: aioinfer.Core, held: MockDevices
) -> None:
    held[0].slot_count = 1
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = [network.create_infer_request() for _ in range(3)]
    running, patient, urgent = requests
    running.start_async(X)
    patient.start_async(X)
    urgent.start_async(X, priority=1)
    ended_count = 0
    while "idle" not in repr(patient):
        for request in (running, urgent):
            if "idle" in repr(request):
                request.start_async(X, priority=1)
        held[0].held.release()
        ended_count += 1
    assert ended_count == MOST_OVERTAKINGS + 2  # the one that ran, seven urgent ones, and its own
    finish(held)


def test_with_0_none_may_wait(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 0})
    running = [network.create_infer_request() for _ in range(2)]
    for request in running:
        request.start_async(X)
    late = network.create_infer_request()
    with pytest.raises(OverloadedError, match="has 0 runs waiting") as caught:
        late.start_async(X)
    assert (caught.value.waiting_count, caught.value.limit) == (0, 0)
    finish(held)
    late.start_async(X)
    finish(held)
    assert counts(network) == (3, 1)


async def test_a_stream_passes_where_none_may_wait(core: aioinfer.Core) -> None:
    network = core.load_network(tiny_model(), "REFERENCE", {"MAX_QUEUED_REQUESTS": 0})
    found = [outputs["y"].shape async for outputs in network.stream([X] * 20)]
    assert found == [(1, 3)] * 20
    assert counts(network) == (20, 0)


@pytest.mark.parametrize("config", [{}, {"MAX_QUEUED_REQUESTS": "UNBOUNDED"}])
def test_unbounded_is_no_bound(
    core: aioinfer.Core, held: MockDevices, config: dict[str, Any]
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", config)
    started(network, 100)
    assert network.statistics().waiting_run_count == 98
    finish(held)
    assert counts(network) == (100, 0)


async def test_a_refused_run_without_a_request_leaves_nothing(
    held: MockDevices, network: aioinfer.ExecutableNetwork
) -> None:
    fill(network)
    for _ in range(5):
        with pytest.raises(OverloadedError):
            await network.infer(X)
    assert len(network.admission.runs) == 3
    finish(held)
    assert len(network.admission.runs) == 0


@pytest.mark.parametrize("where", ["given to HETERO", "set for the device"])
def test_a_run_that_hetero_let_in_is_never_refused_by_its_parts(
    core: aioinfer.Core, held: MockDevices, where: str
) -> None:
    bound = {"MAX_QUEUED_REQUESTS": 1}
    if where == "set for the device":
        core.set_config("MOCK", bound)
    held[0].slot_count, held[1].slot_count = 4, 1
    network = core.load_network(tiny_model(), "HETERO:MOCK.0,MOCK.1", {**SPLIT, **bound})
    slots = network.admission.slot_count
    assert slots == 5
    requests = started(network, slots + 1)
    with pytest.raises(OverloadedError, match=r"'tiny' on HETERO:MOCK\.0,MOCK\.1 has 1 runs"):
        network.create_infer_request().start_async(X)
    held[0].held.release(4)
    assert network.networks[1].admission.waiting_count == 3, "more than it may, for its own users"
    finish(held)
    assert all(request.wait() for request in requests)
    assert counts(network) == (slots + 1, 1)


@pytest.mark.parametrize("key", ["MAX_QUEUED_REQUESTS", "DEFAULT_DEADLINE_S"])
def test_hetero_takes_no_such_property_for_one_of_its_devices(
    core: aioinfer.Core, held: MockDevices, key: str
) -> None:
    config = {**SPLIT, "DEVICE_PROPERTIES": {"MOCK.0": {key: 1}}}
    with pytest.raises(PropertyError, match=f"{key} of MOCK.0 would say nothing.*beside DEVICE_"):
        core.load_network(tiny_model(), "HETERO:MOCK.0,MOCK.1", config)


async def test_a_short_run_that_finds_no_slot_is_refused_as_well(core: aioinfer.Core) -> None:
    core.register_plugin("INLINE", InlinePlugin)
    network = core.load_network(tiny_model(), "INLINE", {"MAX_QUEUED_REQUESTS": 1})
    assert isinstance(network, InlineNetwork)
    assert network.admission.gate is not None
    may_go = threading.Event()
    network.compute = lambda *_: may_go.wait(WAIT_S)
    requests = fill(network)
    network.admission.gate.time_of({"x": X}).is_short = True
    for infer in (network.infer, network.create_infer_request().infer):
        with pytest.raises(OverloadedError):
            await infer(X)
    may_go.set()
    assert all(request.wait() for request in requests)
    assert counts(network) == (3, 2)


def test_a_draining_close_gives_queued_runs_their_turn_and_takes_no_more(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    requests = [network.create_infer_request() for _ in range(5)]
    for request in requests[:4]:
        request.start_async(X)
    closing = threading.Thread(target=network.close)
    is_waited_for = threading.Event()
    wait_until_over = network.admission.wait_until_over

    def wait(timeout_s: float | None) -> bool:
        is_waited_for.set()
        return wait_until_over(timeout_s)

    network.admission.wait_until_over = wait  # type: ignore[method-assign]
    closing.start()
    assert is_waited_for.wait(WAIT_S)
    with pytest.raises(ClosedError):
        requests[4].start_async(X)
    assert network.statistics().waiting_run_count == 2
    finish(held)
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert all(request.wait() for request in requests[:4])
    assert counts(network) == (4, 0)


class _Preempted:
    """A lock behind which another thread works, before the one that has held it goes on."""

    def __init__(self, lock: Any, meanwhile: Callable[[], None]) -> None:
        self._lock, self._meanwhile = lock, meanwhile

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)
        self._meanwhile()


def test_a_run_that_is_given_a_slot_as_it_enters_begins_once(
    core: aioinfer.Core, held: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    held[0].slot_count = 1
    network = core.load_network(tiny_model(), "MOCK.0")
    begun: list[int] = []
    begin = Run._begin

    def counted(run: Run) -> None:
        begun.append(run.bindings.run_id)
        begin(run)

    monkeypatch.setattr(Run, "_begin", counted)
    first, second = started(network, 1)[0], network.create_infer_request()
    admission = network.admission
    lock = admission.lock

    def free_the_slot() -> None:
        if threading.current_thread() is threading.main_thread() and admission._queue.waiting:
            admission.lock = lock
            other = threading.Thread(target=held[0].held.release)
            other.start()
            other.join(WAIT_S)

    admission.lock = _Preempted(lock, free_the_slot)  # type: ignore[assignment]
    second.start_async(X)
    assert admission.lock is lock
    assert held[0].held.waiting_count == 1
    held[0].held.release()
    for request in (first, second):
        assert request.wait(WAIT_S)
        assert np.array_equal(request.results["y"], expected(X))
    assert len(begun) == len(set(begun)) == 2
