"""What runs do when the driver refuses to enqueue, or says no more of an error than that it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from aioinfer import ExecutableNetwork
from aioinfer.backends.accelerator.executable_network import AcceleratorNetwork
from aioinfer.backends.accelerator.queues import opened_device
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.accelerator.queues.queue_stream import QueueEvent
from aioinfer.errors import DeviceError
from aioinfer.executors import DeviceEvent
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver, ManualEvent
from unit.backends.accelerator.serving import negating, serving

X = np.arange(12, dtype=np.float32).reshape(3, 4)
WAIT_S = 20.0
REFUSED = DriverError(ErrorKind.OUT_OF_MEMORY, "OUT_OF_HOST_MEMORY")
COMMANDS_OF_A_RUN = 8
"""Write, marker; wait, launch, marker; wait, read, marker."""
MINE = np.float32(7)
"""What a caller writes to an array that is theirs again."""


def has_passed(event: QueueEvent) -> bool:
    marker = event.submission.marker
    assert isinstance(marker, ManualEvent)
    return marker.ended.is_set()


class LockStep:
    """Stands in for completion threads: events fire when the test lets them, on its thread."""

    all: ClassVar[list[LockStep]] = []

    def __init__(self, name: str, wait_for: Callable[[DeviceEvent], None]) -> None:
        self._wait_for = wait_for
        self._watched: list[QueueEvent] = []
        self.all.append(self)

    def watch(self, event: DeviceEvent) -> None:
        assert isinstance(event, QueueEvent)
        self._watched.append(event)

    def fire_over(self) -> bool:
        """Fire what the device has passed; False if there was nothing."""
        has_fired = False
        while over := [event for event in self._watched if has_passed(event)]:
            self._watched.remove(over[0])
            try:
                self._wait_for(over[0])
            except DeviceError as error:
                over[0].fire(error)
            else:
                over[0].fire()
            has_fired = True
        return has_fired

    def close(self) -> None:
        assert self._watched == []


@pytest.fixture(params=["cpu", "discrete"])
def driver(request: pytest.FixtureRequest) -> FakeDriver:
    """Give devices that write results where they belong, and that write them to staging memory."""
    return FakeDriver(replace(FACTS, kind=request.param), is_eager=False)


@pytest.fixture
def network(driver: FakeDriver) -> Iterator[ExecutableNetwork]:
    with serving(driver) as core:
        yield core.load_network(negating(X), "FAKE")
    assert driver.contexts[0].alive == []


class Caller:
    """One request, and an array of the caller's that it writes to, if it has one."""

    def __init__(self, network: ExecutableNetwork, number: int) -> None:
        self.inputs = X + number
        self.mine = np.zeros_like(X) if number % 2 else None
        self.found: np.ndarray | None = None
        self.has_settled = False
        self.request = network.create_infer_request()
        if self.mine is not None:
            self.request.set_tensor("y", self.mine)

    def look(self) -> None:
        """If the run has ended, take its result, and use the arrays for something else."""
        if self.has_settled:
            return
        try:
            self.has_settled = self.request.wait(0.0)
        except DeviceError:
            self.has_settled = True
        else:
            if self.has_settled:
                self.found = self.request.results["y"].copy()
        if self.has_settled and self.mine is not None:
            self.mine[:] = MINE


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_refused_every_run_settles_once_and_is_done_with_its_memory(
    seed: int, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    LockStep.all.clear()
    monkeypatch.setattr(opened_device, "CompletionThread", LockStep)
    order, count = random.Random(seed), 1 + seed % 6
    with serving(driver) as core:
        with core.load_network(negating(X), "FAKE") as network:
            (context,) = driver.contexts

            def step() -> bool:
                has_moved = context.advance(order)
                has_fired = sum(completion.fire_over() for completion in LockStep.all) > 0
                for caller in callers:
                    caller.look()
                return has_moved or has_fired

            for number in order.sample(
                range(count * COMMANDS_OF_A_RUN), order.randrange(1, 3 + count // 2)
            ):
                driver.command_errors[driver.command_count + 1 + number] = REFUSED
            callers = [Caller(network, number) for number in range(count)]
            for caller in callers:
                caller.request.start_async(caller.inputs)
                for _ in range(order.randrange(6)):
                    step()
            while not all(caller.has_settled for caller in callers):
                assert step(), "nothing is left to do, and a run has not ended"
            found, counts = [caller.found is not None for caller in callers], network.statistics()
            assert counts.finished_request_count == found.count(True)
            assert counts.failed_request_count == found.count(False)
            assert counts.running_run_count == counts.waiting_run_count == 0
        context.run_all(order)  # what is left uses no memory that the network has given back
    for caller in callers:
        if caller.found is not None:
            np.testing.assert_array_equal(caller.found, -caller.inputs)
        if caller.mine is not None:
            np.testing.assert_array_equal(caller.mine, MINE)
    assert context.alive == []


def test_a_refused_marker_of_the_download_leaves_no_read_behind(
    driver: FakeDriver, network: ExecutableNetwork
) -> None:
    request, mine = network.create_infer_request(), np.zeros_like(X)
    request.set_tensor("y", mine)
    driver.command_errors[driver.command_count + COMMANDS_OF_A_RUN] = REFUSED
    request.start_async(X)
    assert not request.wait(0.0)
    driver.contexts[0].run_all()
    assert request.wait(WAIT_S)
    np.testing.assert_array_equal(mine, -X)


def test_a_refused_marker_keeps_nothing_after_the_run(
    driver: FakeDriver, network: ExecutableNetwork
) -> None:
    driver.is_eager = True
    for number in range(COMMANDS_OF_A_RUN):
        driver.command_errors[driver.command_count + 1 + number] = REFUSED
        try:
            network.create_infer_request().infer_sync(X)
        except DeviceError:
            driver.command_errors.clear()
    network.create_infer_request().infer_sync(X)
    assert isinstance(network, AcceleratorNetwork)
    assert [len(stream.unfinished) for stream in network.opened.queues.streams] == [0, 0, 0]


def test_a_device_that_is_out_of_resources_run_by_run_is_lost(
    driver: FakeDriver, network: ExecutableNetwork
) -> None:
    driver.is_eager = True
    request = network.create_infer_request()
    for expected in ("failed while", "failed while", "is lost"):
        driver.fails["compute: launch"] = DriverError(
            ErrorKind.OUT_OF_RESOURCES, "OUT_OF_RESOURCES"
        )
        with pytest.raises(
            DeviceError, match=rf"{expected}.*\(FAKE\.0 compute\).*OUT_OF_RESOURCES"
        ):
            request.infer_sync(X)


def test_an_upload_of_weights_that_fails_says_why_and_leaves_no_copy(driver: FakeDriver) -> None:
    weights = {"w": np.ones((3, 4), np.float32), "v": np.ones((1, 4), np.float32)}
    nodes = [operator("Add", "x", "w", outputs=["s"]), operator("Mul", "s", "v")]
    with serving(driver) as core:
        model = model_of(nodes, {"x": X}, constants=weights)
        driver.fails["setup: write"] = DriverError(ErrorKind.LOST, "DEVICE_NOT_AVAILABLE")
        with pytest.raises(DeviceError, match=r"lost \(uploading weights: DEVICE_NOT_AVAILABLE\)"):
            core.load_network(model, "FAKE")
    assert driver.contexts[0].alive == []
