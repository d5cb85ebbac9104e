"""Networks on CPU: plans per shape, the caller's memory, many callers, and ends of all kinds."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.compiler import Compiler
from aioinfer.backends.cpu.executable_network import CpuNetwork
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.plans.plan_builder import PlanBuilder
from aioinfer.backends.cpu.programs import resized_plan
from aioinfer.backends.cpu.programs.program import Program
from aioinfer.errors import (
    ClosedError,
    DeviceError,
    PropertyError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.executors import StreamsConfig
from aioinfer.executors.manual import ManualExecutor
from aioinfer.runtime.runs.inline_gate import FIRST_RUNS
from unit.backends.cpu.comparing import model_of, precisions, run

node = helper.make_node
CHANCE = np.random.default_rng(3)
X = CHANCE.standard_normal((4, 16)).astype(np.float32)
W = CHANCE.standard_normal((16, 16)).astype(np.float32)
NODES = [
    node("MatMul", ["x", "w"], ["a"], "product"),
    node("Relu", ["a"], ["b"], "act"),
    node("Softmax", ["b"], ["y"], "prob"),
]


def rows(count: int) -> np.ndarray:
    return np.resize(X, (count, 16))


def model(dynamic: bool = False, **options: Any) -> Any:
    return model_of(NODES, {"x": X}, constants={"w": W}, dynamic=dynamic, **options)


@pytest.fixture(scope="module")
def wanted(core: Core) -> np.ndarray:
    return run(core, model(), "REFERENCE", {"x": X})["y"]


@pytest.fixture
def network(core: Core) -> Iterator[Any]:
    with core.load_network(model(), "CPU") as made:
        yield made


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def test_each_shape_gets_a_plan_once(core: Core) -> None:
    with core.load_network(model(dynamic=True), "CPU") as network:
        request = network.create_infer_request()
        assert network.get_metric("PLAN_COUNT") == 0
        for count in (1, 5, 1, 5, 2):
            given = np.resize(X, (count, 16))
            assert request.infer_sync({"x": given})["y"].shape == (count, 16)
        assert network.get_metric("PLAN_COUNT") == 3


def test_plans_are_bounded_and_the_latest_used_stay(core: Core) -> None:
    with core.load_network(model(dynamic=True), "CPU", {"PLAN_CACHE_COUNT": 6}) as network:
        request = network.create_infer_request()
        for count in range(1, 16):
            request.infer_sync({"x": np.resize(X, (count, 16))})
        assert network.get_metric("PLAN_COUNT") == 6


def test_plans_share_their_weights(core: Core) -> None:
    with core.load_network(model(dynamic=True), "CPU") as network:
        request = network.create_infer_request()
        request.infer_sync({"x": rows(64)})
        size = network.get_metric("PACKED_WEIGHTS_BYTES")
        request.infer_sync({"x": rows(65)})
        assert network.get_metric("PACKED_WEIGHTS_BYTES") in (size, 2 * size)  # two layouts at most


def test_shapes_that_were_listed_are_compiled_while_loading(core: Core) -> None:
    shapes = [{"x": (count, 16)} for count in (1, 2, 3)]
    with core.load_network(model(dynamic=True), "CPU", {"INPUT_SHAPES": shapes}) as network:
        assert network.get_metric("PLAN_COUNT") == 3
        network.create_infer_request().infer_sync({"x": rows(2)})
        assert network.get_metric("PLAN_COUNT") == 3


def test_requests_of_one_new_shape_compile_once(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    go = threading.Event()
    real = Compiler.compile

    def slow(self: Compiler, shapes: Any, contents: Any) -> Any:
        compiled.append(dict(shapes))
        assert go.wait(30)
        return real(self, shapes, contents)

    monkeypatch.setattr(Compiler, "compile", slow)
    with core.load_network(model(dynamic=True), "CPU", {"NUM_STREAMS": 2}) as network:
        requests = [network.create_infer_request() for _ in range(4)]
        for request in requests:
            request.start_async({"x": X})
        go.set()
        assert all(request.wait(30) for request in requests)
        assert compiled == [{"x": (4, 16)}]
        assert all(same(requests[0].results["y"], r.results["y"]) for r in requests)


def release_next(executor: ManualExecutor) -> None:
    """Release what the stage that wants a plan hands over, once it has."""
    give_up_at = monotonic() + 30
    while not executor.waiting_count:
        assert monotonic() < give_up_at
    executor.release()


def test_smaller_plans_wait_apart_from_new_shapes(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = {name: ManualExecutor(name) for name in ("compile", "resize")}
    acquire, release = core.executors.acquire, core.executors.release

    def lend(config: StreamsConfig) -> Any:
        return manual.get(config.name) or acquire(config)

    def take_back(executor: Any) -> None:
        if executor not in manual.values():
            release(executor)

    monkeypatch.setattr(core.executors, "acquire", lend)
    monkeypatch.setattr(core.executors, "release", take_back)
    with core.load_network(model(dynamic=True), "CPU") as network:
        request = network.create_infer_request()
        request.start_async({"x": X})
        release_next(manual["compile"])
        assert request.wait(30)
        assert isinstance(network, CpuNetwork)
        (plan,) = network._plans.plans()
        network._resizing.want(plan, 1)
        request.start_async({"x": rows(3)})
        release_next(manual["compile"])
        is_done = request.wait(30)
        manual["compile"].close()
        assert is_done
        assert (manual["resize"].waiting_count, plan.resized) == (1, {1: None})
    made: list[Any] = []
    monkeypatch.setattr(resized_plan, "resized_plan", lambda *given: made.append(given))
    manual["resize"].release()
    assert not made  # the network is closed


def test_a_failed_plan_fails_its_runs_and_is_tried_again(
    core: Core, monkeypatch: pytest.MonkeyPatch, wanted: np.ndarray
) -> None:
    real, failures = Compiler.compile, [DeviceError("no plan today")]

    def fail(self: Compiler, shapes: Any, contents: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(self, shapes, contents)

    monkeypatch.setattr(Compiler, "compile", fail)
    with core.load_network(model(dynamic=True), "CPU") as network:
        request = network.create_infer_request()
        with pytest.raises(DeviceError, match="no plan today"):
            request.infer_sync({"x": X})
        np.testing.assert_allclose(request.infer_sync({"x": X})["y"], wanted, atol=1e-5)


@pytest.mark.parametrize("device", ["CPU", "AUTO:CPU,REFERENCE"])
@pytest.mark.parametrize("given", ["a file", "a Model"])
def test_a_model_whose_first_plan_fails_is_whole_for_the_next_try(
    core: Core,
    monkeypatch: pytest.MonkeyPatch,
    wanted: np.ndarray,
    tmp_path: Path,
    given: str,
    device: str,
) -> None:
    """Passes rewrite a model in place, but none that a caller, or a device's next turn, gets."""
    real, failures = PlanBuilder.build, [DeviceError("no plan today")]

    def fail(self: PlanBuilder, lower: Any) -> Plan:
        if failures:
            raise failures.pop()
        return real(self, lower)

    monkeypatch.setattr(PlanBuilder, "build", fail)
    file = tmp_path / "model.onnx"
    file.write_bytes(model().SerializeToString())
    read = core.read_model(file)
    source = read if given == "a Model" else file
    if device == "CPU":
        with pytest.raises(DeviceError, match="no plan today"):
            core.load_network(source, device)
    with core.load_network(source, device) as network:
        results = network.create_infer_request().infer_sync(X)
    np.testing.assert_allclose(results["y"], wanted, atol=1e-5)
    assert not failures
    assert [item.op_type for item in read.graph.nodes] == ["MatMul", "Relu", "Softmax"]


@pytest.mark.parametrize("kind", ["columns", "strided", "backwards", "unaligned", "repeated"])
def test_inputs_may_lie_in_any_way(network: Any, core: Core, kind: str) -> None:
    if kind == "columns":
        given = np.asfortranarray(X)
    elif kind == "strided":
        given = np.repeat(X, 2, axis=1)[:, ::2]
    elif kind == "backwards":
        given = X[::-1, ::-1]
    elif kind == "unaligned":
        given = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
        given[...] = X
    else:
        given = np.broadcast_to(X[0], X.shape)
    plain = network.create_infer_request().infer_sync({"x": given.copy()})["y"]
    assert same(network.create_infer_request().infer_sync({"x": given})["y"], plain)


def test_read_only_inputs_are_read(network: Any, wanted: np.ndarray) -> None:
    given = X.copy()
    given.flags.writeable = False
    got = network.create_infer_request().infer_sync({"x": given})["y"]
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int64, np.bool_])
def test_values_of_every_type_pass_through(core: Core, dtype: Any) -> None:
    given = np.arange(12).reshape(3, 4).astype(dtype)
    typed = model_of([node("Transpose", ["x"], ["y"])], {"x": given})
    got = run(core, typed, "CPU", {"x": given})["y"]
    assert got.dtype == given.dtype
    assert same(got, np.ascontiguousarray(given.T))


def test_results_are_the_callers_own(network: Any) -> None:
    request = network.create_infer_request()
    first = request.infer_sync({"x": X})["y"]
    kept = first.copy()
    second = request.infer_sync({"x": -X})["y"]
    assert not np.may_share_memory(first, second)
    assert same(first, kept)
    assert first.flags.writeable


def test_bound_memory_is_written_by_the_run_itself(network: Any, wanted: np.ndarray) -> None:
    request = network.create_infer_request()
    memory = np.full((4, 16), np.nan, np.float32)
    request.set_tensor("y", memory)
    assert request.infer_sync({"x": X})["y"] is memory
    np.testing.assert_allclose(memory, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["columns", "strided", "unaligned", "the input itself"])
def test_bound_memory_may_lie_in_any_way(network: Any, wanted: np.ndarray, kind: str) -> None:
    given = X.copy()
    if kind == "columns":
        memory = np.zeros((16, 4), np.float32).T
    elif kind == "strided":
        memory = np.zeros((4, 32), np.float32)[:, ::2]
    elif kind == "unaligned":
        memory = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
    else:
        memory = given
    request = network.create_infer_request()
    request.set_tensor("y", memory)
    assert request.infer_sync({"x": given})["y"] is memory
    np.testing.assert_allclose(memory, wanted, atol=1e-5)


def test_a_run_cancelled_before_it_computes_never_computes(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go, count = threading.Event(), threading.Event(), []
    real = Program.run

    def slow(self: Program, *arguments: Any) -> None:
        count.append(1)
        entered.set()
        assert go.wait(30)
        real(self, *arguments)

    with core.load_network(model(), "CPU") as network:
        monkeypatch.setattr(Program, "run", slow)
        first, second, third = (network.create_infer_request() for _ in range(3))
        first.start_async({"x": X})
        assert entered.wait(30)
        second.start_async({"x": X})  # bound to the second slot, behind the first on the stream
        third.start_async({"x": X})  # waits for a slot
        second.cancel()
        third.cancel()
        go.set()
        assert first.wait(30)
        for request in (second, third):
            with pytest.raises(RequestCancelledError):
                request.wait(30)
        network.close()
        assert len(count) == 1


def test_a_run_cancelled_while_it_computes_is_answered_at_once_and_ends_later(
    core: Core, monkeypatch: pytest.MonkeyPatch, wanted: np.ndarray
) -> None:
    entered, go = threading.Event(), threading.Event()
    real = Program.run

    def slow(self: Program, *arguments: Any) -> None:
        entered.set()
        assert go.wait(30)
        real(self, *arguments)

    with core.load_network(model(), "CPU") as network:
        request = network.create_infer_request()
        monkeypatch.setattr(Program, "run", slow)
        request.start_async({"x": X})
        assert entered.wait(30)
        request.cancel()
        with pytest.raises(RequestCancelledError):
            _ = request.results
        assert not request.wait(0)  # answered, and not over
        go.set()
        with pytest.raises(RequestCancelledError):
            request.wait(30)
        fresh = network.create_infer_request()
        np.testing.assert_allclose(fresh.infer_sync({"x": X})["y"], wanted, atol=1e-5)


def test_an_index_in_the_data_that_is_out_of_range_names_the_node(core: Core) -> None:
    index = np.array([0, 1, 2], np.int64)
    nodes = [node("Relu", ["x"], ["a"]), node("Gather", ["a", "i"], ["y"], "lookup")]
    inputs = {"x": X, "i": index}
    with core.load_network(model_of(nodes, inputs), "CPU") as network:
        request = network.create_infer_request()
        good = request.infer_sync(inputs)["y"]
        with pytest.raises(TensorError) as failed:
            request.infer_sync({"x": X, "i": index + 2})
        assert str(failed.value) == (
            "CPU failed in Gather (node 'lookup'): an index in the data is out of range; "
            "check its index inputs"
        )
        assert same(request.infer_sync(inputs)["y"], good)
        assert network.statistics().failed_request_count == 1


async def test_many_callers_at_once_get_identical_bits(core: Core) -> None:
    given = [X * scale for scale in (1, 2, -1, 0.5)]
    config = {"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2}
    with core.load_network(model(), "CPU", config) as network:
        request = network.create_infer_request()
        wanted = [(await request.infer({"x": x}))["y"] for x in given]
        failures: list[int] = []

        async def task(index: int) -> None:
            for turn in range(20):
                which = (index + turn) % len(given)
                got = await network.infer({"x": given[which]})
                if not same(got["y"], wanted[which]):
                    failures.append(index)

        def thread(index: int) -> None:
            own = network.create_infer_request()
            for turn in range(20):
                which = (index + turn) % len(given)
                if not same(own.infer_sync({"x": given[which]})["y"], wanted[which]):
                    failures.append(index)

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as pool:
            threads = [loop.run_in_executor(pool, thread, index) for index in range(4)]
            await asyncio.gather(*(task(index) for index in range(40)), *threads)
        assert failures == []
        assert network.statistics().finished_request_count == 4 + 40 * 20 + 4 * 20


def test_networks_side_by_side_on_one_stream_do_not_disturb_each_other(core: Core) -> None:
    other = model_of(
        [node("Softmax", ["x"], ["a"], axis=0), node("MatMul", ["a", "w"], ["y"])],
        {"x": X},
        constants={"w": W},
    )
    with core.load_network(model(), "CPU") as one, core.load_network(other, "CPU") as two:
        requests = [network.create_infer_request() for network in (one, two)]
        wanted = [request.infer_sync({"x": X})["y"] for request in requests]
        for _ in range(30):
            for request in requests:
                request.start_async({"x": X})
            for request, right in zip(requests, wanted, strict=True):
                assert request.wait(30)
                assert same(request.results["y"], right)


def test_a_closed_network_refuses(core: Core) -> None:
    network = core.load_network(model(), "CPU")
    request = network.create_infer_request()
    request.infer_sync({"x": X})
    network.close()
    network.close()
    with pytest.raises(ClosedError, match="is closed; load it again"):
        request.infer_sync({"x": X})
    assert network.get_metric("ARENA_BYTES") == 0


def test_a_closed_network_lets_go_of_its_memory(core: Core) -> None:
    network = core.load_network(model(), "CPU")
    network.create_infer_request().infer_sync({"x": X})
    network.close()
    del network
    gc.collect()
    assert [item for item in gc.get_objects() if isinstance(item, Program | Plan)] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_network_from_before_a_fork_refuses_in_the_child(network: Any) -> None:
    request = network.create_infer_request()
    request.infer_sync({"x": X})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            request.infer_sync({"x": X})
        except ClosedError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    request.infer_sync({"x": X})


def test_node_times_name_original_nodes_and_add_up(core: Core) -> None:
    with core.load_network(model(), "CPU", {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        request.infer_sync({"x": X})
        profile = request.profiling()
        names = {name for item in profile for name in item.original_nodes}
        assert names == {"product", "act", "prob"}
        assert all(item.start_ns <= item.end_ns for item in profile)
        assert all(one.end_ns == other.start_ns for one, other in itertools.pairwise(profile))
        (span,) = [span for span in network.trace() if span.stage == "compute"]
        assert span.started_ns <= profile[0].start_ns
        assert profile[-1].end_ns <= span.ended_ns
        total = sum(item.real_time_s for item in profile)
        assert total == pytest.approx((profile[-1].end_ns - profile[0].start_ns) / 1e9)


def test_without_perf_count_there_are_no_times(network: Any) -> None:
    request = network.create_infer_request()
    request.infer_sync({"x": X})
    with pytest.raises(PropertyError, match="PERF_COUNT"):
        request.profiling()


def test_the_graph_shows_fused_nodes_and_what_became_of_them(network: Any) -> None:
    graph = network.runtime_graph()
    origins = [set(item.fused_from) for item in graph.nodes]
    assert {"product", "act"} in origins
    ids = {item.metadata["subgraph_id"] for item in graph.nodes}
    assert len(ids) == 1
    assert all(item.metadata["implementation"] for item in graph.nodes)
    assert "product" in network.runtime_graph().nodes_of("MatMul", "aioinfer.cpu")[0].fused_from


def test_before_the_first_shape_the_graph_is_the_model(core: Core) -> None:
    with core.load_network(model(dynamic=True), "CPU") as network:
        nodes = network.runtime_graph().nodes
        assert [item.op for item in nodes] == ["MatMul", "Relu", "Softmax"]
        assert not any("implementation" in item.metadata for item in nodes)


@pytest.mark.skipif("bf16" not in precisions(), reason="this CPU has no instructions for bf16")
def test_smaller_types_inside_leave_the_ends_as_they_are(core: Core, wanted: np.ndarray) -> None:
    config = {"INFERENCE_PRECISION_HINT": "bf16"}
    with core.load_network(model(), "CPU", config) as network:
        got = network.create_infer_request().infer_sync({"x": X})["y"]
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, atol=3e-2)
        held = {item.metadata["precision"] for item in network.runtime_graph().nodes}
        assert "bfloat16" in held


def test_results_are_the_same_bits_from_run_to_run(core: Core) -> None:
    for config in ({"INFERENCE_NUM_THREADS": 1}, {"INFERENCE_NUM_THREADS": 2}):
        with core.load_network(model(), "CPU", config) as network:
            request = network.create_infer_request()
            first = request.infer_sync({"x": X})["y"]
            assert all(same(request.infer_sync({"x": X})["y"], first) for _ in range(20))


def test_a_network_of_many_inputs_and_outputs(core: Core) -> None:
    count = 40
    inputs = {f"x{index}": np.full((2, 3), index, np.float32) for index in range(count)}
    nodes = [node("Neg", [f"x{index}"], [f"y{index}"]) for index in range(count)]
    names = [f"y{index}" for index in range(count)]
    got = run(core, model_of(nodes, inputs, names), "CPU", inputs)
    for index in range(count):
        np.testing.assert_array_equal(got[f"y{index}"], -inputs[f"x{index}"])


def test_inputs_that_nothing_uses_are_taken_and_left(core: Core) -> None:
    inputs = {"x": X, "unused": np.zeros(3, np.int64)}
    got = run(core, model_of([node("Relu", ["x"], ["y"])], inputs), "CPU", inputs)["y"]
    np.testing.assert_array_equal(got, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("threads", "side", "is_inline"),
    [(1, 4, True), (1, 1500, True), (2, 4, True), (2, 1500, False)],
)
async def test_runs_stay_on_their_callers_thread_only_where_no_team_is_needed(
    core: Core, threads: int, side: int, is_inline: bool
) -> None:
    config = {"INFERENCE_NUM_THREADS": threads, "INLINE_THRESHOLD_US": 1_000_000}
    x = np.linspace(-1, 1, side * side, dtype=np.float32).reshape(side, side)
    with core.load_network(model_of([node("Relu", ["x"], ["y"])], {"x": x}), "CPU", config) as net:
        for _ in range(20):
            assert same((await net.infer({"x": x}))["y"], np.maximum(x, 0))
        lanes = {span.lane for span in net.trace() if span.stage == "compute"}
        assert ("CPU.0.caller" in lanes) == is_inline
        assert "CPU.0.0" in lanes  # the first runs, which packed the weights


def test_plans_of_open_shapes_stay_with_callers_one_by_one_if_they_need_no_team(core: Core) -> None:
    config = {"INFERENCE_NUM_THREADS": 2, "INLINE_THRESHOLD_US": 1_000_000}
    with core.load_network(model(dynamic=True), "CPU", config) as network:
        request = network.create_infer_request()
        for count, is_inline in ((4, True), (40_000, False), (5, True)):
            given = rows(count)
            wanted = request.infer_sync({"x": given})["y"]
            for _ in range(FIRST_RUNS + 1):
                assert same(request.infer_sync({"x": given})["y"], wanted)
            assert (network.trace()[-1].lane == "CPU.0.caller") == is_inline, count


async def test_a_team_never_computes_on_the_lane_for_callers(core: Core) -> None:
    config = {"INFERENCE_NUM_THREADS": 2, "INLINE_THRESHOLD_US": 1_000_000}
    with core.load_network(model(dynamic=True), "CPU", config) as network:
        given = rows(40_000)
        wanted = (await network.infer({"x": given}))["y"]
        network.admission.gate.time_of({"x": given}).is_short = True  # as other contents may say
        assert same((await network.infer({"x": given}))["y"], wanted)
        assert {span.lane for span in network.trace()} == {"CPU.0.0"}
        assert network.statistics().finished_request_count == 2


async def test_spans_and_graphs_name_the_same_subgraph(core: Core) -> None:
    with core.load_network(model(), "CPU") as network:
        await network.infer({"x": X})
        (node_id,) = {item.metadata["subgraph_id"] for item in network.runtime_graph().nodes}
        spans = [span for span in network.trace() if span.stage == "compute"]
        assert {span.subgraph for span in spans} == {node_id}
    with core.load_network(model(dynamic=True), "CPU") as network:
        for count in (1, 2):
            await network.infer({"x": X[:count]})
        names = [span.subgraph for span in network.trace() if span.stage == "compute"]
        assert len(set(names)) == 2


def test_statistics_count_the_plans(core: Core) -> None:
    with core.load_network(model(dynamic=True), "CPU") as network:
        assert network.statistics().plans.build_count == 0
        request = network.create_infer_request()
        for count in (1, 2, 1):
            request.infer_sync({"x": X[:count]})
        statistics = network.statistics()
        assert statistics.plans.build_count == 2
        assert statistics.plans.build_s > 0
