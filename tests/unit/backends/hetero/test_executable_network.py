"""Runs over several devices that wait for the test, so that every order is the test's choice."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.errors import (
    ClosedError,
    DeadlineExceededError,
    DeviceError,
    NotSupportedError,
    RequestCancelledError,
    TensorError,
    UnsupportedOpError,
)
from aioinfer.testing import MockDevices, MockPlugin, VirtualTimer
from unit.backends.hetero.small_graphs import affinity, arrays, graph, on_one_device

WAIT_S = 20.0  # a bound for what must happen; never slept through
MOCKS = "HETERO:MOCK.0,MOCK.1,MOCK.2"
REFERENCES = "HETERO:REFERENCE.0,REFERENCE.1"

# p -> a@0 -> b@1 -> c@0
CHAIN = "a@0 = Relu(p)\nb@1 = Neg(a)\nc@0 = Exp(b)"
# p -> a@0 --+
#   -> b@1 --+-> c@2
FORK = "a@0 = Relu(p)\nb@1 = Neg(p)\nc@2 = Add(a, b)"
X = arrays()


def load(
    core: aioinfer.Core, text: str, outputs: str = "c", device: str = MOCKS, **config: object
) -> aioinfer.ExecutableNetwork:
    plugin = device.split(":")[1].split(".")[0]
    wanted = {"AFFINITY": affinity(text, plugin), **config}
    return core.load_network(graph(text, outputs), device, wanted)


def waiting(mock: MockDevices) -> list[int]:
    return [device.held.waiting_count for device in mock.devices]


def release_all(mock: MockDevices) -> None:
    while any(waiting(mock)):
        for device in mock.devices:
            device.held.release(device.held.waiting_count)


def expected_chain(inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.exp(-np.maximum(inputs["p"], 0))


def test_a_run_goes_from_device_to_device(core: aioinfer.Core, mock: MockDevices) -> None:
    request = load(core, CHAIN).create_infer_request()
    request.start_async(X)
    for step in ([1, 0, 0], [0, 1, 0], [1, 0, 0]):
        assert waiting(mock) == step
        mock[step.index(1)].held.release()
    assert request.wait(WAIT_S)
    np.testing.assert_array_equal(request.results["c"], expected_chain(X))


def test_independent_subgraphs_run_side_by_side(core: aioinfer.Core, mock: MockDevices) -> None:
    request = load(core, FORK).create_infer_request()
    request.start_async(X)
    assert waiting(mock) == [1, 1, 0]
    mock[1].held.release()
    assert waiting(mock) == [1, 0, 0]  # c waits for a, too
    mock[0].held.release()
    assert waiting(mock) == [0, 0, 1]
    mock[2].held.release()
    assert request.wait(WAIT_S)


def test_the_next_request_enters_the_first_device_while_this_one_is_on_the_second(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, CHAIN)
    first, second = network.create_infer_request(), network.create_infer_request()
    first.start_async(X)
    mock[0].held.release()
    second.start_async(arrays(seed=1))
    assert waiting(mock) == [1, 1, 0]
    release_all(mock)
    assert first.wait(WAIT_S)
    assert second.wait(WAIT_S)
    np.testing.assert_array_equal(second.results["c"], expected_chain(arrays(seed=1)))


def test_cancel_between_two_sub_requests_starts_nothing_more(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    request = load(core, CHAIN).create_infer_request()
    request.start_async(X)
    request.cancel()
    assert waiting(mock) == [1, 0, 0]
    mock[0].held.release()  # the stage looks at the stop and ends without computing
    assert waiting(mock) == [0, 0, 0]
    with pytest.raises(RequestCancelledError):
        request.wait(WAIT_S)
    request.start_async(X)
    release_all(mock)
    assert request.wait(WAIT_S)


def test_cancel_reaches_a_sub_request_that_waits_for_a_slot(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[1].slot_count = 1
    network = load(core, CHAIN)
    requests = [network.create_infer_request() for _ in range(2)]
    for request in requests:
        request.start_async(X)
    mock[0].held.release(2)
    assert waiting(mock) == [0, 1, 0]  # the second waits for the one slot of b's network
    requests[1].cancel()
    with pytest.raises(RequestCancelledError):
        requests[1].wait(WAIT_S)
    release_all(mock)
    assert requests[0].wait(WAIT_S)


def test_an_error_of_one_subgraph_is_the_request_s_when_all_is_quiet(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    request = load(core, FORK).create_infer_request()
    request.start_async(X)
    mock[0].held.fail(MemoryError("device 0 is full"))
    assert request.wait(0) is False  # b is still on its device
    mock[1].held.release()
    assert waiting(mock) == [0, 0, 0]  # c was not started
    with pytest.raises(DeviceError, match="device 0 is full"):
        request.wait(WAIT_S)
    request.start_async(X)
    release_all(mock)
    assert request.wait(WAIT_S)


def test_a_deadline_answers_and_later_subgraphs_do_not_start(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, CHAIN)
    clock = network.clock = VirtualTimer()

    async def expire() -> None:
        request = network.create_infer_request()
        answer = asyncio.ensure_future(request.infer(X, deadline_s=1.0))
        await asyncio.sleep(0)
        assert waiting(mock) == [1, 0, 0]
        clock.advance(1.0)
        with pytest.raises(DeadlineExceededError):
            await answer
        mock[0].held.release()
        assert waiting(mock) == [0, 0, 0]
        with pytest.raises(DeadlineExceededError):
            await request.wait_async()

    asyncio.run(expire())
    assert network.statistics().expired_request_count == 1


def test_closing_lets_a_run_finish_on_devices_that_it_has_not_reached_yet(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, CHAIN)
    request = network.create_infer_request()
    request.start_async(X)
    network.close(timeout_s=0)
    with pytest.raises(ClosedError):
        network.create_infer_request()
    release_all(mock)
    assert request.wait(WAIT_S)
    network.close()
    assert all(inner.is_closed for inner in network.networks)


def test_closing_without_drain_ends_a_run_at_the_next_subgraph(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    network = load(core, CHAIN)
    request = network.create_infer_request()
    request.start_async(X)
    network.close(drain=False, timeout_s=0)
    mock[0].held.release()
    assert waiting(mock) == [0, 0, 0]
    with pytest.raises(ClosedError):
        request.wait(WAIT_S)
    network.close()


def test_a_core_closes_the_outer_network_before_the_inner_ones(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load(core, CHAIN)
    closed: list[str] = []
    for item in (network, *network.networks):

        def close(item: Any = item, close: Any = item.close, **options: Any) -> bool:
            closed.append(item.name)
            return bool(close(**options))

        monkeypatch.setattr(item, "close", close)
    core.close()
    assert closed[0] == "small"


def test_a_device_whose_results_come_late_is_waited_for(core: aioinfer.Core) -> None:
    streamed = MockDevices(3, is_streamed=True)
    core.register_plugin("MOCK", streamed.make_plugin)
    request = load(core, CHAIN).create_infer_request()
    request.start_async(X)
    assert streamed[1].streams.enqueued == []
    streamed[0].streams.fire_all()
    assert streamed[1].streams.enqueued != []
    streamed[1].streams.fire_all()
    assert request.wait(0) is False
    streamed[0].streams.fire_all()
    assert request.wait(WAIT_S)
    np.testing.assert_array_equal(request.results["c"], expected_chain(X))


def test_a_device_that_fails_late_fails_the_request(core: aioinfer.Core) -> None:
    streamed = MockDevices(3, is_streamed=True)
    core.register_plugin("MOCK", streamed.make_plugin)
    request = load(core, CHAIN).create_infer_request()
    request.start_async(X)
    streamed[0].streams.fail("upload", OSError("lost"))
    streamed[0].streams.fire_all()
    assert streamed[1].streams.enqueued == []
    with pytest.raises(OSError, match="lost"):
        request.wait(WAIT_S)


def test_a_bound_output_is_written_in_place_also_if_it_crosses(core: aioinfer.Core) -> None:
    text = "a@0 = Relu(p)\nb@1 = Neg(a)"
    request = load(core, text, "a b", REFERENCES).create_infer_request()
    own = {name: np.empty((2, 3), np.float32) for name in "ab"}
    for name, array in own.items():
        request.set_tensor(name, array)
    results = request.infer_sync(X)
    assert results["a"] is own["a"]
    assert results["b"] is own["b"]
    np.testing.assert_array_equal(own["b"], -np.maximum(X["p"], 0))
    with pytest.raises(TensorError, match="read-only"):
        request.set_tensor("a", np.broadcast_to(np.float32(0), (2, 3)))


def test_results_come_in_the_order_of_the_outputs(core: aioinfer.Core) -> None:
    text = "a@0 = Relu(p)\nb@1 = Neg(a)\nc@0 = Exp(b)"
    results = load(core, text, "c a b", REFERENCES).create_infer_request().infer_sync(X)
    assert list(results) == ["c", "a", "b"]


def test_links_live_no_longer_than_their_run(core: aioinfer.Core) -> None:
    network = load(core, CHAIN, device=REFERENCES)
    request = network.create_infer_request()
    made: list[weakref.ref[np.ndarray]] = []
    inner = network.networks[1]
    start_run = inner.start_run

    def spy(bindings, stop, after, then) -> None:
        made.append(weakref.ref(bindings.inputs["a"]))
        start_run(bindings, stop, after, then)

    inner.start_run = spy
    request.infer_sync(X)
    assert request.wait(WAIT_S)
    gc.collect()
    assert len(made) == 1
    assert made[0]() is None


def test_many_concurrent_requests_all_get_their_own_answer(core: aioinfer.Core) -> None:
    fork = FORK.replace("@2", "@0")
    network = load(core, fork, device=REFERENCES)

    async def serve() -> None:
        inputs = [arrays(seed=seed) for seed in range(100)]
        results = await asyncio.gather(*(network.infer(item) for item in inputs))
        for given, result in zip(inputs, results, strict=True):
            np.testing.assert_array_equal(result["c"], np.maximum(given["p"], 0) - given["p"])

    asyncio.run(serve())
    assert network.statistics().finished_request_count == 100


def test_spans_carry_the_outer_request_and_say_the_subgraph(core: aioinfer.Core) -> None:
    network = load(core, CHAIN, device=REFERENCES)
    for _ in range(2):
        request = network.create_infer_request()
        request.infer_sync(X)
        assert request.wait(WAIT_S)
    computed = [
        (span.run_id, span.stage, span.executor)
        for span in network.trace()
        if span.stage.endswith(": compute")
    ]
    assert computed == [
        (run, f"subgraph{index}: compute", f"REFERENCE.{index % 2}")
        for run in range(2)
        for index in range(3)
    ]


def test_the_busy_shares_of_a_device_add_up_over_its_subgraphs(core: aioinfer.Core) -> None:
    network = load(core, CHAIN, device=REFERENCES)
    request = network.create_infer_request()
    request.infer_sync(X)
    assert request.wait(WAIT_S)
    statistics = network.statistics()
    counts = {stage.stage: stage.count for stage in statistics.stages}
    assert [counts[f"subgraph{index}: compute"] for index in range(3)] == [1, 1, 1]
    busy_s = sum(s.busy_s for s in statistics.stages if s.executor == "REFERENCE.0")
    assert statistics.busy_shares["REFERENCE.0"] == pytest.approx(
        busy_s / statistics.elapsed_s, abs=1e-6
    )


def test_node_times_of_all_subgraphs_are_joined(core: aioinfer.Core) -> None:
    request = load(core, CHAIN, device=REFERENCES, PERF_COUNT=True).create_infer_request()
    request.infer_sync(X)
    assert request.wait(WAIT_S)
    names = [entry.name for entry in request.profiling()]
    assert names == ["subgraph0: a", "subgraph1: b", "subgraph2: c"]
    assert [entry.original_nodes for entry in request.profiling()] == [("a",), ("b",), ("c",)]


def test_the_runtime_graph_tells_device_and_subgraph_of_every_node(core: aioinfer.Core) -> None:
    whole = load(core, CHAIN, device=REFERENCES).runtime_graph()
    assert [(n.name, n.affinity, n.metadata["subgraph"], n.fused_from) for n in whole.nodes] == [
        ("a", "REFERENCE.0", "0", ("a",)),
        ("b", "REFERENCE.1", "1", ("b",)),
        ("c", "REFERENCE.0", "2", ("c",)),
    ]


def test_facts_about_the_network(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, CHAIN)
    assert network.get_metric("NUMBER_OF_SUBGRAPHS") == 3
    assert network.get_metric("EXECUTION_DEVICES") == ["MOCK.0", "MOCK.1"]
    assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 4  # two a device
    assert network.get_metric("DEVICE_PROPERTIES")["MOCK.1"]["DEVICE_ID"] == "1"
    assert network.device == MOCKS


def test_the_number_of_requests_bounds_the_slots(core: aioinfer.Core, mock: MockDevices) -> None:
    network = load(core, CHAIN, PERFORMANCE_HINT_NUM_REQUESTS=1)
    assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 1
    requests = [network.create_infer_request() for _ in range(2)]
    for request in requests:
        request.start_async(X)
    mock[0].held.release()
    assert waiting(mock) == [0, 1, 0]  # the second run has no slot yet
    release_all(mock)
    assert all(request.wait(WAIT_S) for request in requests)


def test_outputs_that_no_node_makes_are_copies(core: aioinfer.Core) -> None:
    from aioinfer.runtime.onnx_reader import read_model

    whole = read_model(graph("a@0 = Add(p, k)", "a"))
    constant = whole.graph.initializers["k"]
    whole.graph.outputs = [*whole.graph.outputs, whole.graph.inputs[0], constant]
    network = core.load_network(whole, REFERENCES)
    results = network.create_infer_request().infer_sync(X)
    assert list(results) == ["a", "p", "k"]
    np.testing.assert_array_equal(results["p"], X["p"])
    assert not np.shares_memory(results["p"], X["p"])
    np.testing.assert_array_equal(results["k"], constant.constant)
    results["k"][:] = 0
    assert constant.constant.any()


def test_a_model_without_nodes_runs(core: aioinfer.Core) -> None:
    network = load(core, "a@0 = Relu(k)", "a", REFERENCES)
    assert network.get_metric("NUMBER_OF_SUBGRAPHS") == 0
    assert network.partition.removed_nodes == ("a",)
    results = network.create_infer_request().infer_sync({})
    np.testing.assert_array_equal(results["a"], np.full((1, 3), 1.5, np.float32))


def test_an_unused_input_is_accepted(core: aioinfer.Core) -> None:
    text = "a@0 = Relu(p1)\nb@1 = Neg(a)"
    proto = graph(text, "b", inputs="p1 p2")
    network = core.load_network(proto, REFERENCES, {"AFFINITY": affinity(text, "REFERENCE")})
    inputs = arrays("p1 p2")
    results = network.create_infer_request().infer_sync(inputs)
    np.testing.assert_array_equal(results["b"], on_one_device(core, proto, inputs)["b"])
    with pytest.raises(TensorError, match="'p2'"):
        network.create_infer_request().infer_sync(arrays("p1"))


def test_the_trace_tells_devices_and_follows_a_request_over_them(core: aioinfer.Core) -> None:
    fork = FORK.replace("@2", "@0")
    network = load(core, fork, device=REFERENCES)
    for _ in range(2):
        network.create_infer_request().infer_sync(X)
    trace = network.trace()
    assert (trace.network, trace.device) == ("small", REFERENCES)
    assert [run.run_id for run in trace.runs] == [0, 1]
    for run in trace.runs:
        spans = {trace[index].stage: trace[index] for index in run.spans}
        assert len(spans) == len(run.spans)
        computed = {name: span.device for name, span in spans.items() if "compute" in name}
        assert set(computed.values()) == {"REFERENCE.0", "REFERENCE.1"}
        parts = trace.critical_path(run)
        assert sum(part.slot_ns + part.queue_ns + part.service_ns for part in parts) == (
            run.latency_ns
        )
        assert min(min(part.slot_ns, part.queue_ns, part.service_ns) for part in parts) >= 0


def test_runs_of_one_request_are_told_apart_over_all_subgraphs(core: aioinfer.Core) -> None:
    network = load(core, CHAIN, device=REFERENCES)
    request = network.create_infer_request()
    for _ in range(3):
        request.infer_sync(X)
    trace = network.trace()
    assert [run.label for run in trace.runs] == ["0.1", "0.2", "0.3"]
    for run in trace.runs:
        stages = [trace[index].stage for index in run.spans if "compute" in trace[index].stage]
        assert stages == [f"subgraph{index}: compute" for index in range(3)]
    assert network.statistics().batch_sizes == {2: 3}


def test_copying_what_no_node_makes_is_a_stage_of_its_own(core: aioinfer.Core) -> None:
    model = parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 20]>
        small (float[2,3] p) => (float[2,3] a, float[2] k) <float[2] k = {1, 2}> {a = Relu(p)}
        """
    )
    network = core.load_network(model, REFERENCES)
    request = network.create_infer_request()
    assert request.infer_sync(X)["k"].tolist() == [1, 2]
    copies = [span for span in network.trace() if span.stage == "copy"]
    assert [(span.executor, span.device) for span in copies] == [("HETERO.copy", network.device)]
    assert [stage.count for stage in network.statistics().stages if stage.stage == "copy"] == [1]
    assert not [span for span in network.trace() if span.lane == "none"], "binding is no stage"


def test_a_refusal_of_a_part_tells_its_user_another_way_out_than_hetero(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    request = load(core, CHAIN).create_infer_request()
    request.start_async(X)
    refusal = UnsupportedOpError("a", "Relu", "MOCK.0", "it is too hot")
    assert "try device 'HETERO:MOCK.0,REFERENCE'" in str(refusal)
    mock[0].held.fail(refusal)
    with pytest.raises(UnsupportedOpError) as caught:
        request.wait(WAIT_S)
    assert str(caught.value) == (
        f"MOCK.0 cannot run Relu (node 'a'): it is too hot; give the node to another device with "
        f"AFFINITY={{'a': ...}}, or change the list of '{MOCKS}'"
    )
    assert caught.value.__cause__ is refusal
    assert (caught.value.node, caught.value.device) == ("a", "MOCK.0")


def test_a_part_that_is_refused_when_it_is_loaded_tells_the_same(
    core: aioinfer.Core, mock: MockDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedOpError("c", "Exp", "MOCK.0", "it is too hot")

    monkeypatch.setattr(MockPlugin, "compile_network", refuse)
    with pytest.raises(UnsupportedOpError, match=r"AFFINITY=\{'c': \.\.\.\}.*HETERO:MOCK\.0"):
        load(core, CHAIN)


def test_extensions_are_sent_to_the_devices_of_the_list(core: aioinfer.Core) -> None:
    extension = aioinfer.Extension("Swirl", lambda x: x)
    with pytest.raises(NotSupportedError, match="HETERO runs no operators itself; add the ext"):
        core.add_extension(extension, "HETERO")
