"""States on a device with memory of its own: handed on there, and as before where a run fails."""

from __future__ import annotations

import random

import numpy as np
import pytest

from aioinfer import Core, ExecutableNetwork, InferRequest
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.errors import DeviceError, RequestCancelledError
from unit.backends.accelerator.fake_driver import FakeContext, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving

X = np.arange(12, dtype=np.float32).reshape(3, 4)
STATE = {"STATE": {"x": "y"}}
BOTH = pytest.mark.parametrize("plugin", [CapturingPlugin, OpenClPlugin])


@pytest.fixture
def network(fake_core: Core) -> ExecutableNetwork:
    """Each run negates the state of its request, and has no other input or output."""
    return fake_core.load_network(negating(X), "FAKE", STATE)


def step(context: FakeContext, request: InferRequest, seed: int = 1) -> None:
    request.start_async({})
    pump(context, request, seed=seed)
    assert request.results == {}


def transfers(context: FakeContext) -> list[str]:
    """List what has crossed between host and device."""
    return [item for item in context.done if item.rsplit(" ", 1)[1] in ("write", "read")]


def state_of(request: InferRequest) -> np.ndarray:
    (state,) = request.query_state()
    return state.state


@BOTH
def test_no_step_moves_a_state_to_the_host_or_back(
    driver: FakeDriver, network: ExecutableNetwork
) -> None:
    (context,) = driver.contexts
    request = network.create_infer_request()
    (state,) = request.query_state()
    state.state = X
    step(context, request)
    assert transfers(context) == ["upload: write"]
    for number in range(2, 9):
        step(context, request)
        assert transfers(context) == ["upload: write"], f"step {number}"
    np.testing.assert_array_equal(state.state, X)
    np.testing.assert_array_equal(state.state, X)
    assert transfers(context) == ["upload: write", "reads: read"], "downloaded when asked for, once"


@BOTH
def test_a_state_that_was_reset_or_set_is_uploaded(
    driver: FakeDriver, network: ExecutableNetwork
) -> None:
    (context,) = driver.contexts
    request = network.create_infer_request()
    (state,) = request.query_state()
    for given in (X, X + 1, None):
        step(context, request)
        if given is None:
            request.reset_state()
        else:
            state.state = given
        del context.done[:]
        step(context, request)
        step(context, request)
        assert transfers(context) == ["upload: write"]
        np.testing.assert_array_equal(state.state, np.zeros_like(X) if given is None else given)


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_requests_keep_blocks_of_their_own(
    seed: int, driver: FakeDriver, network: ExecutableNetwork
) -> None:
    (context,) = driver.contexts
    order = random.Random(seed)
    requests = [network.create_infer_request() for _ in range(5)]
    expected = []
    for number, request in enumerate(requests):
        (state,) = request.query_state()
        state.state = X + number
        expected.append(X + number)
    for _ in range(6):
        started = order.sample(range(5), order.randint(1, 5))
        for number in started:
            requests[number].start_async({})
            expected[number] = -expected[number]
            for _ in range(order.randrange(3)):
                context.advance(order)
        pump(context, *(requests[number] for number in started), seed=seed)
    for request, array in zip(requests, expected, strict=True):
        np.testing.assert_array_equal(state_of(request), array)


@BOTH
def test_a_run_that_is_cancelled_anywhere_leaves_the_state_and_takes_no_memory(
    driver: FakeDriver, network: ExecutableNetwork
) -> None:
    (context,) = driver.contexts
    request = network.create_infer_request()
    (state,) = request.query_state()
    state.state = X
    step(context, request)
    step(context, request)
    np.testing.assert_array_equal(state.state, X)
    alive, order = len(context.alive), random.Random(1)
    expected = X
    for steps in range(10):
        request.start_async({})
        for _ in range(steps):
            context.advance(order)
        request.cancel()
        context.run_all()
        try:
            pump(context, request)
        except RequestCancelledError:
            pass
        else:
            expected = -expected
        np.testing.assert_array_equal(state.state, expected)
    assert len(context.alive) <= alive + 2


@BOTH
def test_a_run_that_fails_leaves_the_state(driver: FakeDriver, network: ExecutableNetwork) -> None:
    (context,) = driver.contexts
    request = network.create_infer_request()
    (state,) = request.query_state()
    state.state = X
    step(context, request)
    for name in ("compute: launch", "1: launch", "compute: replay", "1: replay"):
        driver.fails[name] = DriverError(ErrorKind.OTHER, "a kernel failed")
    request.start_async({})
    with pytest.raises(DeviceError, match="a kernel failed"):
        pump(context, request)
    driver.fails.clear()
    np.testing.assert_array_equal(state.state, -X)
    step(context, request)
    np.testing.assert_array_equal(state.state, X)


def test_what_a_request_keeps_goes_with_it(driver: FakeDriver) -> None:
    with serving(driver) as core:
        network = core.load_network(negating(X), "FAKE", STATE)
        (context,) = driver.contexts
        requests = [network.create_infer_request() for _ in range(12)]
        for request in requests:
            step(context, request)
        taken = len(context.alive)
        del requests, request
        assert len(context.alive) < taken - 5, "all but what the pool keeps for the next runs"
        network.close()
    assert context.alive == []


def test_a_core_that_was_closed_has_taken_states_back(driver: FakeDriver) -> None:
    driver.is_eager = True
    with serving(driver) as core:
        network = core.load_network(negating(X), "FAKE", STATE)
        request = network.create_infer_request()
        request.infer_sync({})
        (context,) = driver.contexts
    assert context.alive == []
    assert request.kept_states is not None


def test_rows_of_a_bucket_are_those_of_the_state(driver: FakeDriver) -> None:
    with serving(driver) as core:
        model = negating(X, dynamic=True)
        network = core.load_network(model, "FAKE", {**STATE, "BATCH_BUCKETS": "8"})
        (context,) = driver.contexts
        request = network.create_infer_request()
        (state,) = request.query_state()
        for rows in (1, 3, 8):
            batch = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
            state.state = batch
            step(context, request)
            step(context, request)
            np.testing.assert_array_equal(state.state, batch)
