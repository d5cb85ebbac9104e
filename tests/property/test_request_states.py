"""Requests under random orders of start, finish, error, cancel, deadline and close.

Time and devices stand still until the test moves them, so each step has one right effect, and after
it every request must show exactly that. Callbacks come on the network's thread and, as coroutines,
on an event loop; they may start their request again, which is parked if the device is busy with the
run before. In the end every run has settled once, its callback came once, and slots, queue and
requests are as they were.
"""

from __future__ import annotations

import asyncio
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
from exhaustive import all_but, drawn
from unit.runtime.models import expected, tiny_model

X = np.array([[-1, 2, 3]], np.float32)
REQUEST_COUNT = 5
CALLED_BACK = (0, 2, 4)
"""The requests with a callback, the last one's on a loop."""
WAIT_S = 60.0
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


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give a loop that runs on a thread of its own."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


class World:
    """A network on devices that wait, its requests, and what each of them must show."""

    def __init__(
        self,
        core: aioinfer.Core,
        model: aioinfer.Model,
        kind: str,
        devices: list[MockDevice],
        loop: asyncio.AbstractEventLoop,
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
        self.again = [0] * REQUEST_COUNT
        """How many callbacks of each request are to start it again."""
        self.told: Counter[int] = Counter()
        self.begun: Counter[int] = Counter()
        self.restarted: list[int] = []
        """The requests that callbacks have started since the last step, which settles them."""
        self.parked_count = 0
        self.refused_count = 0
        """Runs that had not come to the network when it was closed, which it does not count."""
        self.telling = threading.Condition()
        self.has_failed = self.is_closed = False
        for index in CALLED_BACK:  # the others are waited for
            on_loop = index == CALLED_BACK[-1]
            callback = self.callback_on_loop if on_loop else self.callback
            self.requests[index].set_callback(callback, loop if on_loop else None)

    def callback(self, request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        index = self.begin_telling(request)
        self.tell(index, started=self.start_again(index))

    async def callback_on_loop(
        self, request: aioinfer.InferRequest, _error: BaseException | None
    ) -> None:
        index = self.begin_telling(request)
        await asyncio.sleep(0)
        self.tell(index, started=self.start_again(index))

    def begin_telling(self, request: aioinfer.InferRequest) -> int:
        index = self.requests.index(request)
        with self.telling:
            self.begun[index] += 1
        return index

    def tell(self, index: int, *, started: bool) -> None:
        with self.telling:
            self.told[index] += 1
            if started:
                self.restarted.append(index)
            self.telling.notify_all()

    def start_again(self, index: int) -> bool:
        """Start a request in its own callback, if that is wanted; it is told whether it did."""
        if not self.again[index]:
            return False
        self.again[index] -= 1
        try:
            self.requests[index].start_async({"x": X + index})
        except ClosedError:
            assert self.is_closed
            return False
        self.parked_count += self.requests[index]._state == "cancelled"
        return True

    def has_told(self) -> bool:
        """Whether every callback that is due has come and gone."""
        return all(
            self.begun[index] == self.told[index]
            and self.told[index]
            == self.start_counts[index]
            + self.restarted.count(index)
            - (self.answer_of(index) is None and self.start_counts[index] > 0)
            for index in CALLED_BACK
        )

    def settle(self) -> None:
        """Wait for the callbacks that a step has caused, and note what they have started."""
        with self.telling:
            assert self.telling.wait_for(self.has_told, WAIT_S), (self.told, self.start_counts)
            restarted, self.restarted = self.restarted, []
        for index in restarted:
            self.start_counts[index] += 1
            self.deadlines[index] = self.expected[index] = None

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
        request = self.requests[index]
        may_park = request._state == "cancelled" and request._has_unparked
        was_idle = request._state == "idle" or may_park

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
        self.settle()

    def start_in_callback(self, index: int) -> None:
        self.again[index] += 1

    def cancel(self, index: int) -> None:
        self.requests[index].cancel()
        if self.is_under_way(index):
            self.expected[index] = RequestCancelledError.__name__
        self.settle()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for index, deadline in enumerate(self.deadlines):
            is_due = deadline is not None and deadline <= self.clock.now_s()
            if self.is_under_way(index) and is_due:
                self.expected[index] = DeadlineExceededError.__name__
        self.settle()

    def close(self) -> None:
        self.is_closed = True
        for index in range(REQUEST_COUNT):
            if self.is_under_way(index) and self.requests[index]._parked is not None:
                self.refused_count += 1
        self.network.abort()
        for index in range(REQUEST_COUNT):
            if self.is_under_way(index):
                self.expected[index] = ClosedError.__name__
        self.settle()

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
        """Have a device do one thing; False if there is nothing to do."""
        places = self.places(failing=failing)
        if not places:
            return False
        self.has_failed |= failing
        places[choice % len(places)]()
        self.settle()
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
    st.tuples(st.just("start_in_callback"), st.sampled_from(CALLED_BACK)),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 1.0, 3.0])),
    st.tuples(st.just("work"), st.integers(0, 5)),
    st.tuples(st.just("work"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 5)),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", all_but(["held", "two streamed"], KINDS))
@settings(max_examples=drawn(150))
@given(st.lists(steps, max_size=30), st.none() | st.integers(0, 30))
def test_every_run_settles_once(
    core: aioinfer.Core,
    held: MockDevices,
    streamed: MockDevices,
    loop: asyncio.AbstractEventLoop,
    kind: str,
    script: list[tuple[Any, ...]],
    close_before: int | None,
) -> None:
    devices = [*held.devices, *streamed.devices]
    world = World(core, core.read_model(tiny_model()), kind, devices, loop)
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
        assert world.told[index] == (world.start_counts[index] if index in CALLED_BACK else 0)
    event(f"{kind}: {min(world.parked_count, 2)} parked")
    statistics = network.statistics()
    counted = (
        statistics.finished_request_count,
        statistics.failed_request_count,
        statistics.cancelled_request_count,
        statistics.expired_request_count,
        statistics.aborted_request_count,
    )
    assert sum(counted) == sum(world.start_counts) - world.refused_count
    for part in (network, *getattr(network, "networks", ())):
        assert part.admission.waiting_count == 0
        assert len(part.admission._idle) == part.admission.slot_count
        assert part.admission.run_count == 0
        assert len(part.admission.runs) == 0
