"""No run waits for one of another network: not on the device, and not on the host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.queues.opened_device import fewest_users
from aioinfer.backends.opencl.plugin import OpenClPlugin
from unit.backends.accelerator.fake_driver import FACTS, FakeContext, FakeDriver
from unit.backends.accelerator.on_device import OnDevice
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving

pytestmark = pytest.mark.usefixtures("hands_copies_over")

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LARGE = np.ones((130, 130), np.float32)
WAIT_S = 20.0


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(replace(FACTS, can_capture=True, can_adopt=True), is_eager=False)


@pytest.fixture(params=[OpenClPlugin, CapturingPlugin], ids=["launched", "captured"])
def fake_core(driver: FakeDriver, request: pytest.FixtureRequest) -> Iterator[Core]:
    with serving(driver, request.param) as core:
        yield core


def started(network: Any, given: Any) -> Any:
    request = network.create_infer_request()
    request.start_async(given)
    return request


def run_without(context: FakeContext, name: str) -> None:
    """Have the device do all that it can, but for one queue."""
    assert any(queue.name == name and queue.commands for queue in context.queues)
    while any(context.advance_queue(queue) for queue in context.queues if queue.name != name):
        pass


def test_a_request_is_answered_while_the_launch_of_another_network_never_ends(
    driver: FakeDriver, fake_core: Core
) -> None:
    slow, quick = (fake_core.load_network(negating(X), "FAKE") for _ in range(2))
    (context,) = driver.contexts
    stuck = started(slow, X)
    answered = started(quick, X + 1)
    run_without(context, "FAKE.0 compute")
    assert answered.wait(WAIT_S)
    np.testing.assert_array_equal(answered.results["y"], -(X + 1))
    assert not stuck.wait(0.0)
    pump(context, stuck)
    np.testing.assert_array_equal(stuck.results["y"], -X)


def test_networks_take_turns_with_the_queues_and_the_first_has_the_first(
    driver: FakeDriver, fake_core: Core
) -> None:
    networks = [fake_core.load_network(negating(X), "FAKE") for _ in range(2)]
    (context,) = driver.contexts
    names = {queue.name for queue in context.queues}
    assert names >= {"FAKE.0 compute", "FAKE.0 compute 1", "FAKE.0 download 1"}
    networks[0].close()
    fake_core.load_network(negating(X), "FAKE")
    assert {queue.name for queue in context.queues} == names


@pytest.mark.parametrize(
    ("users", "count", "chosen"),
    [
        ([0, 0, 0], 2, [0, 1]),
        ([1, 1, 0], 1, [2]),
        ([1, 1, 0], 2, [0, 2]),
        ([2, 1, 1, 2], 3, [0, 1, 2]),
        ([0, 0], 2, [0, 1]),
    ],
)
def test_the_queues_with_the_fewest_users_are_chosen(
    users: list[int], count: int, chosen: list[int]
) -> None:
    assert fewest_users(users, count) == chosen


def test_an_array_that_its_owner_has_not_written_holds_up_its_own_run_alone(
    driver: FakeDriver, fake_core: Core
) -> None:
    first, second = (fake_core.load_network(negating(X), "FAKE") for _ in range(2))
    (context,) = driver.contexts
    given = OnDevice(context, X)
    waiting = started(first, {"x": given})
    answered = started(second, X + 1)
    run_without(context, "caller")
    assert answered.wait(WAIT_S)
    assert not waiting.wait(0.0)
    pump(context, waiting)
    np.testing.assert_array_equal(waiting.results["y"], -X)


def test_a_large_input_is_copied_while_a_plan_of_another_network_is_captured(
    driver: FakeDriver,
) -> None:
    with serving(driver, CapturingPlugin) as core:
        filling = core.load_network(negating(LARGE), "FAKE")
        binding = core.load_network(negating(X, dynamic=True), "FAKE")
        (context,) = driver.contexts
        is_capturing, may_go_on = threading.Event(), threading.Event()

        def hold() -> None:
            is_capturing.set()
            assert may_go_on.wait(WAIT_S)

        driver.while_capturing = hold
        held = started(binding, X)
        assert is_capturing.wait(WAIT_S)
        answered = started(filling, LARGE)
        pump(context, answered)
        assert not held.wait(0.0)
        may_go_on.set()
        pump(context, held)
