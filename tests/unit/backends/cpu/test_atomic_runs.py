"""Runs that are one call: which are, and that nobody can tell by the outcome."""

from __future__ import annotations

import asyncio
import gc
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
from aioinfer.errors import ClosedError, RequestBusyError, RequestStateError, TensorError
from aioinfer.executors import NOW, hop
from aioinfer.runtime.loops.inline_turn import InlineTurn
from aioinfer.runtime.runs import inline_gate
from aioinfer.runtime.runs.atomic_route import SAMPLED, AtomicRoute
from aioinfer.runtime.runs.atomic_run import AtomicRun
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
    """Counts the runs that were one call, and has something done amid the next ones."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.amid: Callable[[], None] = lambda: None
        """Called when the arrays of a run are made."""
        carry = AtomicRoute.carry

        def seen(route: AtomicRoute, inputs: Any, request: Any, turn: InlineTurn) -> Any:
            run = carry(route, inputs, request, turn)
            self.count += run is not None
            return run

        patch.setattr(AtomicRoute, "carry", seen)
        patch.setattr(inline_gate, "BRIEF_NS", 60_000_000_000)

    def take(self) -> int:
        count, self.count = self.count, 0
        return count

    def watch(self, network: CpuNetwork) -> None:
        """Have ``amid`` be called; for a network of static shapes that has had no run."""

        def make_array(*form: Any) -> np.ndarray[Any, Any]:
            self.amid()
            return np.empty(*form)

        for slot in network._slots:
            slot._empty = make_array


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def repeat(network: CpuNetwork, inputs: dict[str, Any] = INPUTS) -> aioinfer.InferRequest:
    """Have two runs inline of inputs like these, behind which the next may be one call."""
    request = network.create_infer_request()
    request.infer_sync(inputs)
    gate = network.admission.gate
    assert gate is not None
    time = gate.time_of(inputs)
    time.is_short = time.is_brief = True
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
        request = repeat(network)
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
    request = repeat(network)
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
    request = repeat(network)
    np.testing.assert_array_equal(request.infer_sync(given)["y"], -(X + B))
    assert seen.take() == 0


def test_a_mapping_that_is_no_dict_is_looked_at_anew(network: CpuNetwork, seen: Seen) -> None:
    class Given(dict[str, Any]):
        pass

    request = repeat(network)
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
    request = repeat(network)
    with pytest.raises(TensorError) as raised:
        request.infer_sync(given)
    assert str(raised.value) == str(expected.value)
    assert seen.take() == 0
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))


def test_another_shape_is_looked_at_anew_and_is_the_one_before_then(
    network: CpuNetwork, seen: Seen
) -> None:
    request = repeat(network)
    rows = {"x": X[:2].copy(), "b": B[:2].copy()}
    repeat(network, rows)
    assert seen.take() == 0
    np.testing.assert_array_equal(request.infer_sync(rows)["y"], -(X + B)[:2])
    assert seen.take() == 1
    request.infer_sync(INPUTS)
    assert seen.take() == 0


def test_no_rows_are_rows(network: CpuNetwork, seen: Seen) -> None:
    none = {"x": X[:0].copy(), "b": B[:0].copy()}
    request = repeat(network, none)
    assert request.infer_sync(none)["y"].shape == (0, 4)
    assert seen.take() == 1


def test_a_plan_that_was_asked_for_by_a_worker_comes_between(
    network: CpuNetwork, seen: Seen
) -> None:
    request = repeat(network)
    other = network.create_infer_request()
    other.start_async({"x": X[:1].copy(), "b": B[:1].copy()})
    assert other.wait(WAIT_S)
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 0


def test_a_program_that_is_gone_is_not_run(network: CpuNetwork, seen: Seen) -> None:
    request = repeat(network)
    network._programs.clear()
    for plan in network._plans.plans():
        plan.bound.clear()
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 0


def test_a_deadline_a_priority_and_bound_memory_are_looked_at(
    network: CpuNetwork, seen: Seen
) -> None:
    request = repeat(network)
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
    request = repeat(network)
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
        assert network.atomic_route is None


def test_functions_of_the_user_are_called(core: Core, seen: Seen) -> None:
    with core.load_network(
        model_of(NODES, INPUTS),
        "CPU",
        OPTIONS | {"POSTPROCESS_STREAMS": 0},
        postprocess=lambda outputs: outputs["y"].sum(),
    ) as network:
        assert isinstance(network, CpuNetwork)
        request = repeat(network)
        assert request.infer_sync(INPUTS) == -(X + B).sum()
    assert seen.take() == 0


def test_they_are_counted_and_recorded_like_others(network: CpuNetwork, seen: Seen) -> None:
    request = repeat(network)
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
    request = repeat(network)
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


@pytest.fixture
def watched(core: Core, seen: Seen) -> Iterator[CpuNetwork]:
    """A network whose runs call ``seen.amid``."""
    with load(core, dynamic=False) as made:
        seen.watch(made)
        yield made


def test_what_is_amid_a_run_is_asked_before_it_begins(watched: CpuNetwork, seen: Seen) -> None:
    request, calls = repeat(watched), []
    seen.amid = lambda: calls.append(watched.admission.lock.locked())
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert calls == [False]
    assert seen.take() == 1


def taken(lock: Any) -> Callable[[], None]:
    """Return what takes a lock once."""
    return lambda: lock.acquire(False) and None


@pytest.mark.parametrize("which", ["admission", "lane", "request"])
def test_a_lock_that_is_taken_meanwhile_has_the_run_go_the_usual_way(
    watched: CpuNetwork, seen: Seen, which: str
) -> None:
    request = repeat(watched)
    lock = {
        "admission": watched.admission.lock,
        "lane": watched._streams._caller_lock,
        "request": request._lock,
    }[which]
    attempt = watched.atomic_route._known.attempt  # type: ignore[union-attr]
    seen.amid = taken(lock)
    before = watched.admission.arrivals.count
    assert attempt(INPUTS, request) is None
    lock.release()
    seen.amid = lambda: None
    assert watched.admission.arrivals.count == before
    assert attempt(INPUTS, request) is not None
    assert watched.admission.arrivals.count == before + 1


def test_a_close_that_comes_meanwhile_refuses_it(watched: CpuNetwork, seen: Seen) -> None:
    request = repeat(watched)
    seen.amid = watched.abort
    with pytest.raises(ClosedError):
        request.infer_sync(INPUTS)
    assert seen.take() == 0
    assert watched.close()
    assert watched.statistics().finished_request_count == watched.admission.arrivals.count == 3


def test_a_handle_that_is_made_meanwhile_shows_the_results(watched: CpuNetwork, seen: Seen) -> None:
    request = repeat(watched)

    def show() -> None:
        seen.amid = lambda: None
        request.get_tensor("y")

    seen.amid = show
    results = request.infer_sync(INPUTS)
    assert seen.take() == 0
    assert request.get_tensor("y").data is results["y"]


def test_a_run_of_the_request_that_begins_meanwhile_goes_first(
    watched: CpuNetwork, seen: Seen
) -> None:
    request = repeat(watched)

    def begin() -> None:
        seen.amid = lambda: None
        request.start_async({"x": X + 1, "b": B})

    def hold(lane: Any) -> Any:
        may_end.wait(WAIT_S)
        return NOW

    may_end = threading.Event()
    for _ in range(watched._streams.config.stream_count):
        watched._streams.run(hold, NOW, lambda *_: None)
    seen.amid = begin
    with pytest.raises(RequestBusyError):
        request.infer_sync(INPUTS)
    may_end.set()
    assert request.wait(WAIT_S)
    np.testing.assert_array_equal(request.results["y"], -(X + 1 + B))


def test_runs_that_wait_for_a_worker_are_not_overtaken(watched: CpuNetwork, seen: Seen) -> None:
    request, other = repeat(watched), watched.create_infer_request()
    begun, may_end = threading.Event(), threading.Event()

    def hold(lane: Any) -> Any:
        begun.set()
        may_end.wait(WAIT_S)
        return NOW

    watched._streams.run(hold, NOW, lambda *_: None)
    assert begun.wait(WAIT_S)
    other.start_async(INPUTS)  # is in the queue
    attempt = watched.atomic_route._known.attempt  # type: ignore[union-attr]
    assert attempt(INPUTS, request) is None
    may_end.set()
    assert other.wait(WAIT_S)
    while watched._streams.waiting_count:
        pass
    assert attempt(INPUTS, request) is not None


def test_what_makes_arrays_may_fail(watched: CpuNetwork, seen: Seen) -> None:
    request = repeat(watched)

    def fail() -> None:
        seen.amid = lambda: None
        raise MemoryError

    seen.amid = fail
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))  # the usual way
    assert seen.take() == 0
    seen.amid = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        request.infer_sync(INPUTS)
    seen.amid = lambda: None
    assert watched.admission.run_count == 0
    assert not watched.admission.runs
    assert watched.statistics().finished_request_count == watched.admission.arrivals.count == 4
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 1


def test_an_index_out_of_range_is_the_error_of_the_usual_way(core: Core, seen: Seen) -> None:
    x, i = np.arange(12, dtype=np.float32), np.array([1, 2], np.int64)
    model = model_of([node("Gather", ["x", "i"], ["y"])], {"x": x, "i": i})
    with core.load_network(model, "CPU", OPTIONS, name="alike") as network:
        assert isinstance(network, CpuNetwork)
        request = repeat(network, {"x": x, "i": i})
        request.infer_sync({"x": x, "i": i})
        assert seen.take() == 1
        with pytest.raises(TensorError, match="out of range"):
            request.infer_sync({"x": x, "i": np.array([1, 12], np.int64)})
        statistics = network.statistics()
        assert statistics.finished_request_count == 4
        assert statistics.failed_request_count == 1
        assert seen.take() == 0
        request.infer_sync({"x": x, "i": i})
        assert seen.take() == 1


def test_a_request_tells_of_it_as_of_others(network: CpuNetwork, seen: Seen) -> None:
    request = repeat(network)
    request.start_async(INPUTS, userdata="told")
    assert request.wait(WAIT_S)
    assert request.userdata == "told"
    results = request.infer_sync(INPUTS)
    assert seen.take() == 1
    assert request.results is results
    assert request.userdata is None
    assert request.wait(0)
    assert asyncio.run(request.wait_async())
    assert 0 < request.latency_s < WAIT_S
    request.cancel()
    assert request.results is results
    assert "idle" in repr(request)
    with pytest.raises(aioinfer.errors.PropertyError):
        request.profiling()
    told: list[Any] = []
    request.set_callback(lambda request, error: told.append((request.results, error)))
    request.start_async(INPUTS)
    assert request.wait(WAIT_S)
    np.testing.assert_array_equal(told[0][0]["y"], -(X + B))
    assert told[0][1] is None


def test_a_refused_run_leaves_the_one_before(network: CpuNetwork, seen: Seen) -> None:
    request = repeat(network)
    results = request.infer_sync(INPUTS)
    assert seen.take() == 1
    with pytest.raises(TensorError):
        request.infer_sync({"x": X})
    assert request.results is results


def test_one_of_many_goes_the_usual_way_and_counts_what_was_noted(
    network: CpuNetwork, seen: Seen
) -> None:
    request, count = repeat(network), 40 * SAMPLED
    for _ in range(count):
        request.infer_sync(INPUTS)
    assert seen.take() == count - count // SAMPLED
    assert len(network.admission._finished.uncounted) < 1024 + SAMPLED
    assert len(network.admission.recorder._uncounted) < 1024 + SAMPLED
    assert len(network.admission.arrivals._shapes) < 1024 + SAMPLED
    statistics = network.statistics()
    assert network.admission.arrivals.count == statistics.finished_request_count == count + 3
    assert statistics.batch_sizes == {3: count + 3}
    assert statistics.plans.hit_count + statistics.plans.miss_count == count + 3


def test_runs_that_take_far_too_long_go_to_workers(network: CpuNetwork, seen: Seen) -> None:
    request, route = repeat(network), network.atomic_route
    assert route is not None
    assert route._known is not None
    known, overrun = route._known, AtomicRun()
    overrun.results, overrun.duration_ns = {}, known.time.far_too_long_ns
    route._known = known._replace(attempt=lambda *_: overrun)
    turn = InlineTurn()
    while known.time.is_brief:
        assert route.carry(INPUTS, request, turn) is overrun
    assert 3 <= seen.take() <= 4
    assert turn.used_ns >= 3 * overrun.duration_ns
    assert not known.time.is_short
    assert route.carry(INPUTS, request, turn) is None


def test_threads_share_a_network(network: CpuNetwork, seen: Seen) -> None:
    repeat(network)
    outcome: list[bool] = []

    def work(number: int) -> None:
        request, given = network.create_infer_request(), {"x": X + number, "b": B}
        wanted = -(X + number + B)
        outcome.append(
            all(np.array_equal(request.infer_sync(given)["y"], wanted) for _ in range(500))
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert outcome == [True] * 4
    statistics = network.statistics()
    assert statistics.finished_request_count == network.admission.arrivals.count == 2003
    assert statistics.batch_sizes == {3: 2003}
    assert seen.take() > 0


def test_inside_a_stage_it_may_not_wait_for_runs(network: CpuNetwork, seen: Seen) -> None:
    request = repeat(network)
    raised: list[BaseException] = []

    def call() -> None:
        try:
            request.infer_sync(INPUTS)
        except RequestStateError as error:
            raised.append(error)

    hop(call)
    assert raised
    assert seen.take() == 0


def test_a_request_of_a_users_class_goes_the_usual_way(network: CpuNetwork, seen: Seen) -> None:
    class Request(aioinfer.InferRequest):
        @property
        def _has_handles(self) -> bool:  # type: ignore[override]
            return False

        @_has_handles.setter
        def _has_handles(self, _value: bool) -> None:
            """Leave it."""

    repeat(network)
    np.testing.assert_array_equal(Request(network, 9).infer_sync(INPUTS)["y"], -(X + B))
    assert seen.take() == 0


def test_who_looks_at_what_the_collector_counts_sees_nothing_half_made(
    watched: CpuNetwork, seen: Seen
) -> None:
    request, kept = repeat(watched), []

    def look() -> None:
        tuples = [item for item in gc.get_objects() if type(item) is tuple]
        found = [item for item in tuples if len(item) in (1, 3, 7)]
        kept.append([hash(item) for item in found if all(type(part) is int for part in item)])
        kept.append(found)

    seen.amid = look
    np.testing.assert_array_equal(request.infer_sync(INPUTS)["y"], -(X + B))
    seen.amid = lambda: None
    assert seen.take() == 1
    kept.clear()
    assert watched.statistics().finished_request_count == 4


def test_want_of_memory_in_any_call_leaves_nothing(network: CpuNetwork, seen: Seen) -> None:
    request = repeat(network)
    for number in range(200):
        repeat(network)
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
            assert number > 1, "calls were not seen"
            np.testing.assert_array_equal(outcome["y"], -(X + B))
            return
    raise AssertionError("there are more than 200 calls")
