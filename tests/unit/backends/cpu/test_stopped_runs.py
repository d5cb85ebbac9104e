"""Runs that are stopped amid their steps: where they end, what they leave, how they are counted."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core, ExecutableNetwork, InferRequest
from aioinfer.backends.cpu.kernels import numpy_operators
from aioinfer.errors import (
    AioInferError,
    ClosedError,
    DeadlineExceededError,
    RequestCancelledError,
)
from aioinfer.testing import VirtualTimer
from unit.backends.cpu.comparing import model_of

node = helper.make_node
X = np.arange(12, dtype=np.float32).reshape(3, 4)
NAMES = [f"sum{index}" for index in range(4)]
WAIT_S = 30.0  # a bound for what must happen; never slept through


def model() -> Any:
    """Four sums, which CPU computes by numpy, and native steps between them."""
    nodes, last = [], "x"
    for index, name in enumerate(NAMES):
        nodes.append(node("CumSum", [last, "axis"], [f"s{index}"], name))
        last = "y" if index == len(NAMES) - 1 else f"n{index}"
        nodes.append(node("Neg", [f"s{index}"], [last], f"neg{index}"))
    return model_of(nodes, {"x": X}, constants={"axis": np.array(0, np.int64)})


WANTED = X.cumsum(0).cumsum(0).cumsum(0).cumsum(0)


class Held:
    """Holds the sums: each says that it has begun, and one of them waits for the test."""

    def __init__(self) -> None:
        self.at = -1
        self.begun: list[int] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.act: Callable[[], None] | None = None
        """What the sum does in place of waiting."""

    def begin(self, index: int) -> None:
        self.begun.append(index)
        if index != self.at:
            return
        if self.act is not None:
            self.act()
            return
        self.entered.release()
        assert self.go.acquire(timeout=WAIT_S)

    def wait_for_one(self) -> None:
        assert self.entered.acquire(timeout=WAIT_S)


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held, real = Held(), numpy_operators.make_operator

    def make(made_for: Any, opsets: Any) -> Any:
        operator = real(made_for, opsets)
        if made_for.name not in NAMES:
            return operator

        def hold(*arrays: Any) -> Any:
            held.begin(NAMES.index(made_for.name))
            return operator(*arrays)

        return hold

    monkeypatch.setattr(numpy_operators, "make_operator", make)
    yield held
    held.go.release(100)


def check_whole(network: ExecutableNetwork, held: Held) -> None:
    """The next run is right, and nothing of the stopped one is in it."""
    held.at = -1
    np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], WANTED)
    assert network.statistics().running_run_count == 0
    assert len(network.admission._idle) == network.admission.slot_count


def stop(request: InferRequest, network: ExecutableNetwork, how: str) -> type[AioInferError]:
    if how == "cancel":
        request.cancel()
        return RequestCancelledError
    if how == "deadline":
        assert isinstance(network.clock, VirtualTimer)
        network.clock.advance(10.0)
        return DeadlineExceededError
    network.abort()
    return ClosedError


@pytest.mark.parametrize("how", ["cancel", "deadline", "close"])
@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_stopped_run_is_over_after_the_step_that_it_is_in(
    core: Core, sums: Held, how: str, at: int
) -> None:
    with core.load_network(model(), "CPU") as network:
        network.clock = VirtualTimer()
        request = network.create_infer_request()
        output = np.full_like(X, 7)
        request.set_tensor("y", output)
        sums.at = at
        request.start_async(X, deadline_s=5.0)
        sums.wait_for_one()
        error = stop(request, network, how)
        with pytest.raises(error) as answered:
            _ = request.results
        sums.go.release()
        with pytest.raises(error) as ended:
            request.wait(WAIT_S)
        assert repr(ended.value) == repr(answered.value)
        assert sums.begun == list(range(at + 1))
        if at < len(NAMES) - 1:
            assert (output == 7).all()
        if how != "close":
            check_whole(network, sums)


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_stopped_runs_are_counted_when_their_callers_are_answered(
    core: Core, sums: Held, how: str
) -> None:
    with core.load_network(model(), "CPU") as network:
        network.clock = VirtualTimer()
        request = network.create_infer_request()
        sums.at = 1
        request.start_async(X, deadline_s=5.0)
        sums.wait_for_one()
        stop(request, network, how)
        early = network.statistics()
        sums.go.release()
        with pytest.raises(AioInferError):
            request.wait(WAIT_S)
        for statistics in (early, network.statistics()):
            cancelled, expired = (1, 0) if how == "cancel" else (0, 1)
            assert statistics.cancelled_request_count == cancelled
            assert statistics.expired_request_count == expired
            assert statistics.finished_request_count == statistics.failed_request_count == 0
        assert early.running_run_count == 1, "answered, and not over"


def test_a_stream_beside_it_goes_on(core: Core, sums: Held) -> None:
    config = {"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2}
    with core.load_network(model(), "CPU", config) as network:
        first, second = network.create_infer_request(), network.create_infer_request()
        sums.at = 1
        first.start_async(X)
        second.start_async(X)
        sums.wait_for_one()
        sums.wait_for_one()  # each on a stream of its own
        first.cancel()
        sums.go.release(2)
        with pytest.raises(RequestCancelledError):
            first.wait(WAIT_S)
        assert second.wait(WAIT_S)
        np.testing.assert_array_equal(second.results["y"], WANTED)
        assert sorted(sums.begun) == [0, 0, 1, 1, 2, 3]
        check_whole(network, sums)


def test_the_next_run_has_the_slot_of_a_stopped_one_before_its_steps_would_be_done(
    core: Core, sums: Held
) -> None:
    config = {"NUM_STREAMS": 1, "PERFORMANCE_HINT_NUM_REQUESTS": 1}
    with core.load_network(model(), "CPU", config) as network:
        first, second = network.create_infer_request(), network.create_infer_request()
        sums.at = 0
        first.start_async(X)
        sums.wait_for_one()
        second.start_async(X)
        first.cancel()
        sums.at = -1
        sums.go.release()
        assert second.wait(WAIT_S)
        np.testing.assert_array_equal(second.results["y"], WANTED)
        assert sums.begun == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_run_on_its_callers_thread_stops_too(core: Core, sums: Held, at: int) -> None:
    config = {"INFERENCE_NUM_THREADS": 1, "INLINE_THRESHOLD_US": 1_000_000}
    with core.load_network(model(), "CPU", config) as network:
        request = network.create_infer_request()
        for _ in range(20):
            request.infer_sync(X)
        threads: list[threading.Thread] = []

        def cancel() -> None:
            threads.append(threading.current_thread())
            request.cancel()

        sums.at, sums.act = at, cancel
        sums.begun.clear()
        with pytest.raises(RequestCancelledError):
            request.infer_sync(X)
        with pytest.raises(RequestCancelledError):
            asyncio.run(request.infer(X))
        assert threads == [threading.current_thread()] * 2, "not inline"
        assert sums.begun == [*range(at + 1)] * 2
        assert network.statistics().cancelled_request_count == 2
        check_whole(network, sums)


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_hetero_stops_its_parts(core: Core, sums: Held, at: int) -> None:
    affinity = {f"neg{index}": "REFERENCE" for index in range(2, 4)}
    config = {"AFFINITY": {**dict.fromkeys(NAMES, "CPU"), "neg0": "CPU", "neg1": "CPU", **affinity}}
    with core.load_network(model(), "HETERO:CPU,REFERENCE", config) as network:
        request = network.create_infer_request()
        sums.at = at
        request.start_async(X)
        sums.wait_for_one()
        request.cancel()
        sums.go.release()
        with pytest.raises(RequestCancelledError):
            request.wait(WAIT_S)
        assert sums.begun == list(range(at + 1))
        assert network.statistics().cancelled_request_count == 1
        check_whole(network, sums)


def test_runs_cancelled_at_any_time_leave_the_network_whole(core: Core) -> None:
    """With two streams and native steps only; the results are right, or there are none."""
    size = 256
    x = np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size)
    names = ["x", *(f"t{index}" for index in range(60))]
    nodes = [
        node("Softmax", [source], [target], axis=index % 2)
        for index, (source, target) in enumerate(itertools.pairwise(names))
    ]
    proto = model_of(nodes, {"x": x}, [names[-1]])
    with core.load_network(proto, "CPU", {"NUM_STREAMS": 2}) as network:
        wanted = network.create_infer_request().infer_sync(x)[names[-1]]
        chance = np.random.default_rng(7)
        cancelled = 0
        for _ in range(60):
            requests = [network.create_infer_request() for _ in range(4)]
            for request in requests:
                request.start_async(x)
            for turns, request in zip(chance.integers(0, 3000, 4), requests, strict=True):
                for _ in range(turns):
                    pass
                request.cancel()
            for request in requests:
                try:
                    assert request.wait(WAIT_S)
                except RequestCancelledError:
                    cancelled += 1
                else:
                    np.testing.assert_array_equal(request.results[names[-1]], wanted)
        assert cancelled > 0
        assert network.statistics().cancelled_request_count == cancelled
        got = network.create_infer_request().infer_sync(x)[names[-1]]
        np.testing.assert_array_equal(got, wanted)
