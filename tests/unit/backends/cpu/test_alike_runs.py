"""Runs that are like the one before: when they are, and that nobody can tell by the outcome."""

from __future__ import annotations

import asyncio
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import helper

import aioinfer
from aioinfer import Core
from aioinfer.backends.cpu.executable_network import CpuNetwork
from aioinfer.backends.cpu.programs.alike_runs import ProgramRuns
from aioinfer.errors import (
    ClosedError,
    RequestBusyError,
    RequestCancelledError,
    RequestStateError,
    TensorError,
)
from aioinfer.runtime.runs.stage import Stop
from unit.backends.cpu.comparing import model_of
from unit.runtime.runs.test_calls_that_fail import FailingCall

node = helper.make_node
WAIT_S = 20.0  # a bound for what must happen; never slept through
X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.ones((3, 4), np.float32)
NODES = [node("Add", ["x", "b"], ["sum"]), node("Neg", ["sum"], ["y"])]
INPUTS = {"x": X, "b": B}
OPTIONS: dict[str, Any] = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "INLINE_THRESHOLD_US": 60_000_000,  # what has run three times is short, on any busy machine
}


def load(core: Core, *, dynamic: bool = True, **config: Any) -> CpuNetwork:
    """Load a network whose runs are short by decree, so that no clock decides a test."""
    made = core.load_network(
        model_of(NODES, INPUTS, dynamic=dynamic), "CPU", OPTIONS | config, name="alike"
    )
    assert isinstance(made, CpuNetwork)
    return made


class Seen:
    """Counts the runs that are computed as the one before was."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.then: Callable[[Stop], None] = lambda _stop: None
        compute = ProgramRuns.compute

        def seen(runs: ProgramRuns, taken: Any, results: Any, stop: Stop) -> None:
            self.count += 1
            self.then(stop)
            compute(runs, taken, results, stop)

        patch.setattr(ProgramRuns, "compute", seen)

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def become_alike(network: CpuNetwork, inputs: dict[str, Any] = INPUTS) -> aioinfer.InferRequest:
    """Have two runs inline of inputs like these, behind which the next is compared with them."""
    request = network.create_infer_request()
    request.infer_sync(inputs)
    gate = network.admission.gate
    assert gate is not None
    gate.time_of(inputs).is_short = True
    request.infer_sync(inputs)
    request.infer_sync(inputs)
    return request


@pytest.fixture
def network(core: Core, seen: Seen) -> Iterator[CpuNetwork]:
    with load(core) as made:
        yield made


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_third_run_of_a_shape_is_like_the_second(core: Core, seen: Seen, dynamic: bool) -> None:
    with load(core, dynamic=dynamic) as network:
        request = become_alike(network)
        assert seen.take() == 0
        for factor in (1, 2):
            given = {"x": X * factor, "b": B}
            np.testing.assert_array_equal(request.infer_sync(given)["y"], -(X * factor + B))
            outputs = asyncio.run(request.infer(given))
            np.testing.assert_array_equal(outputs["y"], -(X * factor + B))
            outputs = asyncio.run(network.infer(given))
            np.testing.assert_array_equal(outputs["y"], -(X * factor + B))
        assert seen.take() == 6


def test_results_are_the_callers(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)
    first = request.infer_sync(INPUTS)
    assert request.results is first
    kept = first["y"].copy()
    second = request.infer_sync({"x": X + 1, "b": B})
    assert second is not first
    assert not np.shares_memory(first["y"], second["y"])
    np.testing.assert_array_equal(first["y"], kept)
    assert seen.take() == 2


STRIDED = np.repeat(X, 2, axis=1)[:, ::2]
MISALIGNED = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape)


@pytest.mark.parametrize(
    "given",
    [
        {"x": STRIDED, "b": B},
        {"x": np.asfortranarray(X), "b": B},
        {"x": MISALIGNED, "b": B},
        {"x": X.tolist(), "b": B},
        {"x": aioinfer.Tensor(X), "b": B},
        {"x": X.view(np.matrix), "b": B},
        [X, B],
    ],
    ids=["gaps", "columns", "misaligned", "list", "tensor", "matrix", "sequence"],
)
def test_other_arrays_of_the_same_numbers_are_computed_all_the_same(
    network: CpuNetwork, seen: Seen, given: Any
) -> None:
    request = become_alike(network)
    np.testing.assert_array_equal(request.infer_sync(given)["y"], -(X + B))
    assert seen.take() == 0


def test_a_mapping_that_is_no_dict_is_looked_at_anew(network: CpuNetwork, seen: Seen) -> None:
    class Given(dict[str, Any]):
        pass

    request = become_alike(network)
    np.testing.assert_array_equal(request.infer_sync(Given(INPUTS))["y"], -(X + B))
    assert seen.take() == 0


@pytest.mark.parametrize(
    "given",
    [
        {"x": X.astype(np.float64), "b": B},
        {"x": X.astype(">f4"), "b": B},
        {"x": X[0], "b": B},
        {"x": X[:, :3].copy(), "b": B},
        {"x": X},
        {"x": X, "b": B, "c": B},
        {"x": X, "a": B},
        {"x": None, "b": B},
        {"x": X[:2].copy(), "b": B},
        X,
        None,
    ],
)
def test_what_is_wrong_with_inputs_is_said_as_by_the_first_run(
    network: CpuNetwork, seen: Seen, given: Any
) -> None:
    fresh = network.create_infer_request()
    with pytest.raises(TensorError) as expected:
        fresh.infer_sync(given)
    request = become_alike(network)
    with pytest.raises(TensorError) as raised:
        request.infer_sync(given)
    assert str(raised.value) == str(expected.value)
    assert seen.take() == 0
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))


def test_another_shape_is_looked_at_anew_and_is_the_one_before_then(
    network: CpuNetwork, seen: Seen
) -> None:
    request = become_alike(network)
    rows = {"x": X[:2].copy(), "b": B[:2].copy()}
    become_alike(network, rows)
    assert seen.take() == 0
    np.testing.assert_array_equal(request.infer_sync(rows)["y"], -(X + B)[:2])
    assert seen.take() == 1
    request.infer_sync(INPUTS)
    assert seen.take() == 0


def test_no_rows_are_rows(network: CpuNetwork, seen: Seen) -> None:
    none = {"x": X[:0].copy(), "b": B[:0].copy()}
    request = become_alike(network, none)
    assert request.infer_sync(none)["y"].shape == (0, 4)
    assert seen.take() == 1


def test_a_plan_that_was_asked_for_by_a_worker_comes_between(
    network: CpuNetwork, seen: Seen
) -> None:
    request = become_alike(network)
    other = network.create_infer_request()
    other.start_async({"x": X[:1].copy(), "b": B[:1].copy()})
    assert other.wait(WAIT_S)
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 0


def test_an_arena_that_has_moved_is_not_written_to(
    core: Core, network: CpuNetwork, seen: Seen
) -> None:
    request = become_alike(network)
    runs = network._slots[-1]._alike
    assert runs is not None
    assert runs.is_current
    runs._arena.memory = runs._arena.memory[:]
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 0


def test_a_deadline_a_priority_and_bound_memory_are_looked_at(
    network: CpuNetwork, seen: Seen
) -> None:
    request = become_alike(network)
    request.infer_sync(INPUTS, deadline_s=WAIT_S)
    request.infer_sync(INPUTS, priority=1)
    with pytest.raises(aioinfer.errors.PropertyError):
        request.infer_sync(INPUTS, priority=None)  # type: ignore[arg-type]
    memory = np.empty_like(X)
    request.set_tensor("y", memory)
    assert request.infer_sync(INPUTS)["y"] is memory
    np.testing.assert_array_equal(memory, -(X + B))
    assert seen.take() == 0


def test_a_handle_shows_the_results(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)
    handle = request.get_tensor("y")
    results = request.infer_sync(INPUTS)
    assert handle.data is results["y"]


@pytest.mark.parametrize(
    "config", [{"PERF_COUNT": True}, {"DEFAULT_DEADLINE_S": 20.0}, {"INLINE_THRESHOLD_US": 0}]
)
def test_networks_that_note_more_have_no_such_way(
    core: Core, seen: Seen, config: dict[str, Any]
) -> None:
    with load(core, **config) as network:
        assert network.alike_route is None


def test_functions_of_the_user_are_called(core: Core, seen: Seen) -> None:
    with core.load_network(
        model_of(NODES, INPUTS),
        "CPU",
        OPTIONS | {"POSTPROCESS_STREAMS": 0},
        postprocess=lambda outputs: outputs["y"].sum(),
    ) as network:
        assert isinstance(network, CpuNetwork)
        request = become_alike(network)
        assert request.infer_sync(INPUTS) == -(X + B).sum()
    assert seen.take() == 0


def test_they_are_counted_and_recorded_like_others(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)
    for _ in range(3):
        request.infer_sync(INPUTS)
    assert seen.take() == 3
    statistics = network.statistics()
    assert statistics.finished_request_count == 6
    assert (statistics.running_run_count, statistics.waiting_run_count) == (0, 0)
    assert statistics.batch_sizes == {3: 6}
    assert statistics.plans.hit_count + statistics.plans.miss_count == 6
    (stage,) = statistics.stages
    assert stage.count == 6
    spans = list(network.trace())
    assert [span.lane for span in spans[-3:]] == ["CPU.0.caller"] * 3
    assert [span.run_id for span in spans[-3:]] == [request.id] * 3
    assert all(span.queued_ns <= span.started_ns <= span.ended_ns for span in spans)
    assert len({span.age for span in spans}) == 6
    assert request.latency_s > 0


def test_a_closed_network_refuses_and_holds_nothing(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)
    alike = network._slots[-1]._alike
    assert alike is not None
    arena = weakref.ref(alike._arena)
    del alike
    network.close()
    assert arena() is None, "its memory is not given back"
    with pytest.raises(ClosedError):
        request.infer_sync(INPUTS)
    with pytest.raises(ClosedError):
        asyncio.run(network.infer(INPUTS))
    assert seen.take() == 0


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, outcome


class Held:
    """Holds a run amid its computing, until it is let go or stopped."""

    def __init__(self, seen: Seen) -> None:
        self.has_begun, self.may_go = threading.Event(), threading.Event()
        seen.then = self

    def __call__(self, _stop: Stop) -> None:
        self.has_begun.set()
        assert self.may_go.wait(WAIT_S)


def test_another_thread_can_cancel_and_a_busy_request_refuses(
    network: CpuNetwork, seen: Seen
) -> None:
    request, held = become_alike(network), Held(seen)
    thread, outcome = in_thread(lambda: request.infer_sync(INPUTS))
    assert held.has_begun.wait(WAIT_S)
    with pytest.raises(RequestBusyError):
        request.infer_sync(INPUTS)
    assert "busy" in repr(request)
    assert network.statistics().running_run_count == 1
    request.cancel()
    held.may_go.set()
    thread.join(WAIT_S)
    assert isinstance(outcome[0], RequestCancelledError)
    with pytest.raises(RequestCancelledError):
        assert request.results
    counts = network.statistics()
    assert (counts.finished_request_count, counts.cancelled_request_count) == (3, 1)
    seen.then = lambda _stop: None
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))


def test_two_threads_compute_beside_each_other(network: CpuNetwork, seen: Seen) -> None:
    request, held = become_alike(network), Held(seen)
    thread, outcome = in_thread(lambda: request.infer_sync(INPUTS))
    assert held.has_begun.wait(WAIT_S)
    other = network.create_infer_request()
    np.testing.assert_array_equal(other.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.count == 1, "the lane is lent to one thread"
    held.may_go.set()
    thread.join(WAIT_S)
    np.testing.assert_array_equal(outcome[0]["y"], -(X + B))


def test_a_close_waits_for_it_or_ends_it(network: CpuNetwork, seen: Seen) -> None:
    request, held = become_alike(network), Held(seen)
    thread, outcome = in_thread(lambda: request.infer_sync(INPUTS))
    assert held.has_begun.wait(WAIT_S)
    assert not network.close(timeout_s=0)
    network.abort()
    held.may_go.set()
    thread.join(WAIT_S)
    assert isinstance(outcome[0], ClosedError)
    assert network.close()


def test_an_error_of_the_run_is_raised_and_leaves_nothing(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)

    def fail(_stop: Stop) -> None:
        raise ValueError("broken")

    seen.then = fail
    with pytest.raises(ValueError, match="broken"):
        request.infer_sync(INPUTS)
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(network.infer(INPUTS))
    assert network.admission.run_count == 0
    assert not network.admission.runs
    seen.then = lambda _stop: None
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))


def test_an_interrupt_amid_it_is_raised_behind_it(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)
    seen.then = lambda _stop: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        request.infer_sync(INPUTS)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert network.admission.run_count == 0
    assert not network.admission.runs
    seen.then = lambda _stop: None
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 2


def test_it_may_not_wait_for_runs(network: CpuNetwork, seen: Seen) -> None:
    request, other = become_alike(network), network.create_infer_request()

    def wait(_stop: Stop) -> None:
        seen.then = lambda _stop: None
        other.infer_sync(INPUTS)

    seen.then = wait
    with pytest.raises(RequestStateError):
        request.infer_sync(INPUTS)


def test_want_of_memory_in_any_call_leaves_nothing(network: CpuNetwork, seen: Seen) -> None:
    request = become_alike(network)
    for number in range(200):
        become_alike(network)
        with FailingCall(number) as failing:
            try:
                outcome: Any = request.infer_sync(INPUTS)
            except MemoryError as error:
                outcome = error
            except aioinfer.errors.AioInferError as error:
                outcome = error
        assert network.admission.run_count == 0, failing.where
        assert not network.admission.runs, failing.where
        np.testing.assert_array_equal(
            request.infer_sync(INPUTS)["y"], -(X + B), err_msg=failing.where
        )
        if not failing.where:
            assert number > 10, "calls were not seen"
            np.testing.assert_array_equal(outcome["y"], -(X + B))
            return
    raise AssertionError("there are more than 200 calls")
