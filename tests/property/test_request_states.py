"""Requests under random orders of start, finish, error, cancel, deadline and close.

Time and devices stand still until the test moves them, so each step has one right effect, and after
it every request must show exactly that. In the end every run has settled once, its callback came
once, and slots, queue and requests are as they were.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
)
from aioinfer.testing import MockDevice, MockDevices, VirtualTimer
from exhaustive import all_but
from unit.runtime.models import expected, tiny_model

X = np.array([[-1, 2, 3]], np.float32)
REQUEST_COUNT = 5
STREAMS = ("upload", "compute", "download")


class PlantedError(Exception):
    """What the devices fail with here."""


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "held": ("HELD.0", {}),
    "streamed": ("STREAMED.0", {}),
    "two held": (
        "HETERO:HELD.0,HELD.1",
        {"AFFINITY": {"relu": "HELD.0", "add": "HELD.1"}},
    ),
    "streamed, then held": (
        "HETERO:STREAMED.0,HELD.0",
        {"AFFINITY": {"relu": "STREAMED.0", "add": "HELD.0"}},
    ),
    "two streamed": (
        "HETERO:STREAMED.0,STREAMED.1",
        {"AFFINITY": {"relu": "STREAMED.0", "add": "STREAMED.1"}},
    ),
}


@pytest.fixture(scope="module")
def held() -> MockDevices:
    return MockDevices(2)


@pytest.fixture(scope="module")
def streamed() -> MockDevices:
    return MockDevices(2, is_streamed=True)


@pytest.fixture(scope="module")
def core(held: MockDevices, streamed: MockDevices) -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        made.register_plugin("HELD", held.make_plugin)
        made.register_plugin("STREAMED", streamed.make_plugin)
        yield made


class World:
    """A network on devices that wait, its requests, and what each of them must show."""

    def __init__(
        self, core: aioinfer.Core, model: aioinfer.Model, kind: str, devices: list[MockDevice]
    ) -> None:
        device, config = KINDS[kind]
        self.devices = devices
        self.network = core.load_network(model, device, config)
        self.clock = self.network.clock = VirtualTimer()
        self.requests = [self.network.create_infer_request() for _ in range(REQUEST_COUNT)]
        self.expected: list[str | None] = [None] * REQUEST_COUNT
        """How the last run of each request was answered; None: not yet."""
        self.deadlines: list[float | None] = [None] * REQUEST_COUNT
        self.start_counts = [0] * REQUEST_COUNT
        self.told: Counter[int] = Counter()
        self.told_lock = threading.Lock()
        self.has_failed = self.is_closed = False
        for request in self.requests[::2]:  # the others are waited for
            request.set_callback(self.callback)

    def callback(self, request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        with self.told_lock:
            self.told[request.id] += 1

    def answer_of(self, index: int) -> str | None:
        try:
            np.testing.assert_array_equal(self.requests[index].results["y"], expected(X + index))
        except RequestStateError as error:
            return None if type(error) is RequestStateError else type(error).__name__
        except (ClosedError, DeadlineExceededError, PlantedError) as error:
            return type(error).__name__
        return "result"

    def is_under_way(self, index: int) -> bool:
        return self.start_counts[index] > 0 and self.expected[index] is None

    def start(self, index: int, deadline_s: float | None, priority: int) -> None:
        request, was_idle = self.requests[index], self.requests[index]._state == "idle"

        def call() -> None:
            request.start_async({"x": X + index}, deadline_s=deadline_s, priority=priority)

        if self.is_closed:
            with pytest.raises(ClosedError):
                call()
        elif not was_idle:
            with pytest.raises(RequestBusyError):
                call()
        else:
            call()
            self.start_counts[index] += 1
            self.deadlines[index] = None if deadline_s is None else self.clock.now_s() + deadline_s
            self.expected[index] = "DeadlineExceededError" if deadline_s == 0 else None

    def cancel(self, index: int) -> None:
        self.requests[index].cancel()
        if self.is_under_way(index):
            self.expected[index] = RequestCancelledError.__name__

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for index, deadline in enumerate(self.deadlines):
            is_due = deadline is not None and deadline <= self.clock.now_s()
            if self.is_under_way(index) and is_due:
                self.expected[index] = DeadlineExceededError.__name__

    def close(self) -> None:
        self.network.abort()
        self.is_closed = True
        for index in range(REQUEST_COUNT):
            if self.is_under_way(index):
                self.expected[index] = ClosedError.__name__

    def places(self, *, failing: bool) -> list[Callable[[], None]]:
        """List what the devices could do now: end one run, or one stream's next piece of work."""
        found: list[Callable[[], None]] = []
        for device in self.devices:
            if device.streams is None:
                if device.held.waiting_count:
                    end = lambda held=device.held: held.fail(PlantedError("held"))  # noqa: E731
                    found.append(end if failing else device.held.release)
                continue
            for name in STREAMS:
                stream = device.streams.stream(name)
                if not failing and stream.outstanding_count:
                    found.append(lambda stream=stream: stream._advance())
                if failing and name == "upload" and stream.outstanding_count:
                    found.append(
                        lambda streams=device.streams: streams.fail(
                            "upload", PlantedError("streamed")
                        )
                    )
        return found

    def work(self, choice: int, *, failing: bool) -> bool:
        """Let a device do one thing; False if there is nothing to do."""
        places = self.places(failing=failing)
        if not places:
            return False
        self.has_failed |= failing
        places[choice % len(places)]()
        for index in range(REQUEST_COUNT):
            if self.is_under_way(index):
                answer = self.answer_of(index)
                assert answer in (None, "result") or (answer == "PlantedError" and self.has_failed)
                self.expected[index] = answer
        return True

    def check(self) -> None:
        for index in range(REQUEST_COUNT):
            assert self.answer_of(index) == self.expected[index], self.requests[index]

    def finish(self) -> None:
        while any(self.work(choice, failing=False) for choice in range(20)):
            self.check()


starts = st.tuples(
    st.just("start"),
    st.integers(0, REQUEST_COUNT - 1),
    st.sampled_from([None, None, 0, 1.0, 2.5]),
    st.integers(-1, 1),
)
steps = st.one_of(
    starts,
    starts,
    st.tuples(st.just("cancel"), st.integers(0, REQUEST_COUNT - 1)),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 1.0, 3.0])),
    st.tuples(st.just("work"), st.integers(0, 5)),
    st.tuples(st.just("work"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 5)),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", all_but(["held", "two streamed"], KINDS))
@settings(max_examples=150)
@given(st.lists(steps, max_size=30), st.none() | st.integers(0, 30))
def test_every_run_settles_once(
    core: aioinfer.Core,
    held: MockDevices,
    streamed: MockDevices,
    kind: str,
    script: list[tuple[Any, ...]],
    close_before: int | None,
) -> None:
    world = World(core, core.read_model(tiny_model()), kind, [*held.devices, *streamed.devices])
    for number, (name, *arguments) in enumerate(script):
        if number == close_before:
            world.close()
            world.check()
        if name == "work":
            world.work(*arguments, failing=False)
        elif name == "fail":
            world.work(*arguments, failing=True)
        else:
            getattr(world, name)(*arguments)
        world.check()
    world.finish()
    network = world.network
    network.close()
    world.check()
    for index, request in enumerate(world.requests):
        assert world.expected[index] is not None or not world.start_counts[index]
        assert request._state == "idle"
        event(f"{kind}: {world.expected[index]}")
        if request._callback is not None:
            assert world.told[request.id] == world.start_counts[index]
        else:
            assert world.told[request.id] == 0
    statistics = network.statistics()
    counted = (
        statistics.finished_request_count,
        statistics.failed_request_count,
        statistics.cancelled_request_count,
        statistics.expired_request_count,
        statistics.aborted_request_count,
    )
    assert sum(counted) == sum(world.start_counts)
    for part in (network, *getattr(network, "networks", ())):
        assert part.admission.waiting_count == 0
        assert len(part.admission._idle) == part.admission.slot_count
        assert part.admission.run_count == 0
        assert len(part.admission.runs) == 0
