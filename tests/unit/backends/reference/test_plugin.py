"""REFERENCE as a device: how many there are, what they honour, refuse and compile ahead."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.reference.executable_network import ReferenceNetwork
from aioinfer.backends.reference.plugin import ReferencePlugin
from aioinfer.errors import DeviceError, PropertyError
from aioinfer.executors import allowed_cpus
from aioinfer.runtime.properties.properties import INPUT_SHAPES
from unit.runtime.models import expected, tiny_model, two_input_model

X = np.array([[-1, 2, 3]], np.float32)
VARIABLE = "AIOINFER_REFERENCE_DEVICES"


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


def folding_model() -> onnx.ModelProto:
    """Two equal branches, one folded, one dead, one that does nothing: 8 nodes, of which 3 run."""
    nodes = [
        helper.make_node("Add", ["one", "one"], ["two"], "folded"),
        helper.make_node("Identity", ["x"], ["same"], "skipped"),
        helper.make_node("Mul", ["same", "two"], ["left"], "left"),
        helper.make_node("Mul", ["x", "two"], ["right"], "right"),
        helper.make_node("Add", ["left", "right"], ["y"], "sum"),
        helper.make_node("Neg", ["left"], ["unused"], "dead"),
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Abs", ["shape"], ["z"], "abs"),
    ]
    graph = helper.make_graph(
        nodes,
        "folding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("z", TensorProto.INT64, [2]),
        ],
        [numpy_helper.from_array(np.ones(3, np.float32), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(("text", "ids"), [(None, 2), ("1", 1), ("5", 5), ("007", 7)])
def test_a_variable_says_how_many_devices_there_are(
    monkeypatch: pytest.MonkeyPatch, text: str | None, ids: int
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(VARIABLE, text)
    with aioinfer.Core() as core:
        assert core.get_metric("REFERENCE", "AVAILABLE_DEVICES") == [str(i) for i in range(ids)]
        listed = [name for name in core.available_devices if name.startswith("REFERENCE")]
        several = [f"REFERENCE.{index}" for index in range(ids)]
        assert listed == (["REFERENCE"] if ids == 1 else several)
        with core.load_network(tiny_model(), f"REFERENCE.{ids - 1}") as network:
            assert network.device == f"REFERENCE.{ids - 1}"
        with pytest.raises(DeviceError, match=f"REFERENCE has no device '{ids}'; it has"):
            core.load_network(tiny_model(), f"REFERENCE.{ids}")


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "²", "9" * 30])
def test_a_bad_variable_is_the_reason_why_there_are_none(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with aioinfer.Core() as core:
        assert not [name for name in core.available_devices if name.startswith("REFERENCE")]
        reason = f"device REFERENCE cannot start: {VARIABLE}='{text}': a number from 1 to 999"
        assert str(core.why_missing("REFERENCE")).startswith(reason)
        with pytest.raises(DeviceError, match="a number from 1 to 999 is wanted"):
            core.load_network(tiny_model(), "REFERENCE")


def test_devices_are_independent(core: aioinfer.Core) -> None:
    networks = [core.load_network(tiny_model(), f"REFERENCE.{index}") for index in range(2)]
    for index, network in enumerate(networks):
        network.create_infer_request().infer_sync(X)
        stages = {stage.stage: stage.executor for stage in network.statistics().stages}
        assert stages["compute"] == f"REFERENCE.{index}"
    names = [core.get_metric(f"REFERENCE.{index}", "FULL_DEVICE_NAME") for index in range(2)]
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("key", "is_full"),
    [
        ("AVAILABLE_DEVICES", lambda value: value == ["0", "1"]),
        ("FULL_DEVICE_NAME", lambda value: value.startswith("numpy reference 0")),
        ("OPTIMIZATION_CAPABILITIES", lambda value: "FP32" in value),
        ("RANGE_FOR_STREAMS", lambda value: value[0] == 1 < value[1]),
        ("RANGE_FOR_ASYNC_INFER_REQUESTS", lambda value: value[0] == 1 < value[1] and value[2]),
        ("SUPPORTED_METRICS", lambda value: "SUPPORTED_METRICS" in value),
        ("SUPPORTED_CONFIG_KEYS", lambda value: "PERF_COUNT" in value),
        ("SUPPORTED_PROPERTIES", lambda value: value["PERF_COUNT"] == "RW"),
    ],
)
def test_every_fact_of_the_seeds_has_an_answer(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, key: str, is_full: Any
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert is_full(core.get_metric("REFERENCE", key))


@pytest.mark.parametrize(
    ("key", "is_of_one_network"),
    [(declared.key, declared.only_at_load) for declared in ReferencePlugin.standard_properties],
)
def test_every_property_can_be_read_written_back_and_given_to_a_network(
    core: aioinfer.Core, key: str, is_of_one_network: bool
) -> None:
    value = core.get_config("REFERENCE", key)
    if not is_of_one_network:
        core.set_config("REFERENCE", {key: value})
    with core.load_network(tiny_model(), "REFERENCE", {key: value}) as network:
        told = network.get_config(key)
    assert told == (1 if key == "NUM_STREAMS" else value)  # AUTO, and what became of it


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("INFERENCE_NUM_THREADS", 2, "REFERENCE leaves threads .* set NUM_STREAMS, or the var"),
        ("INFERENCE_PRECISION_HINT", "f16", "computes in the model's own types; leave INFER"),
        ("INFERENCE_PRECISION_HINT", "bf16", "given: 'bf16'"),
        ("NUM_STREAMS", 0, "set NUM_STREAMS to AUTO, or to 1 or more \\(given: 0\\)"),
        ("NUM_STREAMS", "NUMA", "does not place them on NUMA nodes"),
        ("NUM_STREAMS", -10, "bad value -10 for NUM_STREAMS"),
        ("PERFORMANCE_HINT", -1, "bad value -1 for PERFORMANCE_HINT"),
        ("PERFORMANCE_HINT_NUM_REQUESTS", -10, "bad value -10 for PERFORMANCE_HINT_NUM_REQ"),
        ("PERF_COUNT", -1, "bad value -1 for PERF_COUNT"),
    ],
)
def test_what_it_cannot_honour_is_refused_before_anything_is_compiled(
    core: aioinfer.Core, key: str, value: Any, message: str
) -> None:
    # A device that compiled first would complain about the operator instead.
    unknown = helper.make_node("Nothing", ["x"], ["y"], "nothing", domain="com.acme")
    model = tiny_model()
    del model.graph.node[:]
    model.graph.node.append(unknown)
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    for call in (
        lambda: core.load_network(model, "REFERENCE", {key: value}),
        lambda: core.set_config("REFERENCE", {key: value}),
        lambda: core.query_network(model, "REFERENCE.1", {key: value}),
    ):
        with pytest.raises(PropertyError, match=message) as caught:
            call()
        assert caught.value.key == key
        assert caught.value.device.startswith("REFERENCE")


@pytest.mark.parametrize(
    ("config", "streams", "requests"),
    [
        ({}, 1, 2),
        ({"PERFORMANCE_HINT": "LATENCY"}, 1, 2),
        ({"PERFORMANCE_HINT": "THROUGHPUT"}, allowed_cpus().count, 2 * allowed_cpus().count),
        ({"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 1}, 1, 1),
        ({"NUM_STREAMS": 3}, 3, 6),
        ({"NUM_STREAMS": 3, "PERFORMANCE_HINT_NUM_REQUESTS": 4}, 3, 4),
        ({"NUM_STREAMS": 1, "PERFORMANCE_HINT": "THROUGHPUT"}, 1, 2),
    ],
)
def test_streams_and_hints_are_honoured(
    core: aioinfer.Core, config: dict[str, Any], streams: int, requests: int
) -> None:
    with core.load_network(tiny_model(), "REFERENCE", config) as network:
        assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == requests
        assert network.get_config("NUM_STREAMS") == streams
        request = network.create_infer_request()
        request.infer_sync(X)
        lanes = {span.lane for span in network.trace() if span.stage == "compute"}
        assert len(lanes) == 1
        assert lanes <= {f"REFERENCE.0.{index}" for index in range(streams)}


def plan_builds(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """The signatures for which the network compiles, from now on."""
    built: list[Any] = []
    assert isinstance(network, ReferenceNetwork)
    plans = network._plans
    build = plans._build

    def counted(shapes: Any, contents: Any) -> Any:
        built.append(tuple(shapes.values()))
        return build(shapes, contents)

    plans._build = counted
    return built


@pytest.mark.parametrize(
    "shapes", [{"x": (1, 3)}, [{"x": (1, 3)}, {"x": [4, 3]}], [{"x": (4, 3)}, {"x": (1, 3)}]]
)
def test_input_shapes_are_compiled_ahead(core: aioinfer.Core, shapes: Any) -> None:
    with core.load_network(tiny_model(), "REFERENCE", {INPUT_SHAPES: shapes}) as network:
        built = plan_builds(network)
        request = network.create_infer_request()
        np.testing.assert_array_equal(request.infer_sync(X)["y"], expected(X))
        assert built == []
        np.testing.assert_array_equal(request.infer_sync(np.zeros((2, 3), np.float32))["y"], 0)
        assert built == [((2, 3),)]


def test_a_shape_that_the_others_determine_may_be_left_out(core: aioinfer.Core) -> None:
    with core.load_network(two_input_model(), "REFERENCE", {INPUT_SHAPES: {"a": [3]}}) as network:
        built = plan_builds(network)
        ones = np.ones(3, np.float32)
        outputs = network.create_infer_request().infer_sync({"a": ones, "b": ones})
    np.testing.assert_array_equal(outputs["sum"], 2)
    assert built == []


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": [3]}, "the model has no input 'z'"),
        ({"a": [3, 4]}, "the model wants 1 axes"),
        ({"a": [3], "b": [4]}, "symbol 'n' would be 3 .* and 4"),
        ({}, "it leaves input a: float32\\[n\\] open; give its shape, too"),
        ({"a": [-1]}, "lengths are integers of at least 0"),
    ],
)
def test_bad_input_shapes_are_refused(core: aioinfer.Core, shapes: Any, message: str) -> None:
    with pytest.raises(PropertyError, match=message) as caught:
        core.load_network(two_input_model(), "REFERENCE", {"INPUT_SHAPES": shapes})
    assert caught.value.key == "INPUT_SHAPES"
    if not shapes:
        return
    with pytest.raises(PropertyError, match="belongs to one network; give it to load_network"):
        core.set_config("REFERENCE", {"INPUT_SHAPES": {"a": [3]}})


def test_input_shapes_that_cannot_fit_are_refused_and_take_no_memory(core: aioinfer.Core) -> None:
    with pytest.raises(DeviceError, match="would make 'left', float32\\[1000000000000000,3\\]"):
        core.load_network(folding_model(), "REFERENCE", {INPUT_SHAPES: {"x": [10**15, 3]}})


def test_a_query_answers_for_every_node_of_the_file(core: aioinfer.Core) -> None:
    model = folding_model()
    answers = core.query_network(model, "REFERENCE")
    assert list(answers) == [node.name for node in model.graph.node]
    assert all(answer.supported for answer in answers.values())
    model.graph.node[4].op_type = "Sum3"  # the one that is fused into nothing else
    answers = core.query_network(model, "REFERENCE")
    assert [name for name, answer in answers.items() if not answer.supported] == ["sum"]
    assert answers["sum"].reason


def test_a_merged_node_gets_the_answer_of_the_one_that_stands_for_it(core: aioinfer.Core) -> None:
    core.add_extension(aioinfer.Extension("Twice", lambda x: x + x, "com.acme"))
    model = folding_model()
    model.graph.node[5].CopyFrom(helper.make_node("Mul", ["same", "two"], ["unused"], "merged"))
    model.graph.node.append(
        helper.make_node("Twice", ["unused"], ["w"], "twice", domain="com.acme")
    )
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, ["n", 3]))
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    answers = core.query_network(model, "REFERENCE")
    assert {"merged", "twice", "left", "right"} <= set(answers)
    assert all(answer.supported for answer in answers.values())


def test_the_runtime_graph_accounts_for_every_node_of_the_file(core: aioinfer.Core) -> None:
    model = folding_model()
    with core.load_network(model, "REFERENCE") as network:
        graph = network.runtime_graph()
        carried = {name for node in graph.nodes for name in node.fused_from}
        removed = set(network.removed_nodes)
        assert carried | removed == {node.name for node in model.graph.node}
        assert not carried & removed
        assert {"folded", "skipped", "dead"} <= removed
        merged = next(node for node in graph.nodes if node.op_type == "Mul")
        assert set(merged.fused_from) == {"left", "right"}
        text = network.explain()
        assert text.startswith(f"folding: all {len(graph)} nodes on REFERENCE.0, the device asked")
        assert "passes made needless: " in text
        assert "skipped" in text
        merged.fused_from = ()  # a copy: the network is not touched
        assert all(node.fused_from for node in network.runtime_graph().nodes)


def test_a_network_tells_what_it_is_and_what_it_was_compiled_with(core: aioinfer.Core) -> None:
    core.set_config("REFERENCE", {"PERFORMANCE_HINT": "THROUGHPUT"})
    config = {"PERF_COUNT": "YES", "NUM_STREAMS": "3"}
    with core.load_network(two_input_model(), "REFERENCE.1", config) as network:
        core.set_config("REFERENCE", {"PERFORMANCE_HINT": "LATENCY"})
        assert [str(port) for port in network.inputs] == ["a: float32[n]", "b: float32[n]"]
        (output,) = network.outputs
        assert (output.name, output.dtype, output.shape) == ("sum", np.float32, ("n",))
        assert network.get_metric("NETWORK_NAME") == "two"
        assert network.get_metric("EXECUTION_DEVICES") == ["REFERENCE.1"]
        keys = network.get_metric("SUPPORTED_CONFIG_KEYS")
        assert {key: network.get_config(key) for key in keys} == {
            "PERFORMANCE_HINT": "THROUGHPUT",
            "PERFORMANCE_HINT_NUM_REQUESTS": 0,
            "NUM_STREAMS": 3,
            "INFERENCE_NUM_THREADS": 0,
            "INLINE_THRESHOLD_US": 50,
            "ENABLE_MMAP": True,
            "ALLOW_AUTO_BATCHING": False,
            "CACHE_DIR": "",
            "CACHE_LIMIT_BYTES": 8 << 30,
            "EXPORTABLE": False,
            "MAX_QUEUED_REQUESTS": -1,
            "DEFAULT_DEADLINE_S": 0.0,
            "INFERENCE_PRECISION_HINT": "f32",
            "LOG_LEVEL": "LOG_NONE",
            "PERF_COUNT": True,
            "PLAN_CACHE_COUNT": 0,
            "POSTPROCESS_STREAMS": -1,
            "PREPROCESS_STREAMS": -1,
            "DEVICE_ID": "1",
            "INPUT_SHAPES": (),
            "OUTPUT_LOCATION": {},
            "STATE": "AUTO",
        }
        assert network.get_config("KEY_PERF_COUNT") is True
        for key in network.get_metric("SUPPORTED_METRICS"):
            assert network.get_metric(key) or key == "LOADED_FROM_CACHE", key
        assert set(network.get_metric("SUPPORTED_PROPERTIES").values()) == {"RO"}


@pytest.mark.parametrize(
    ("ask", "key", "message"),
    [
        ("get_config", "PERF_COUNTS", "no property 'PERF_COUNTS'; did you mean 'PERF_COUNT'"),
        ("get_config", "NETWORK_NAME", "has no property 'NETWORK_NAME'; that is a fact: ask with"),
        ("get_metric", "NETWORK_NAMES", "no metric 'NETWORK_NAMES'; did you mean 'NETWORK_NAME'"),
        ("get_metric", "PERF_COUNT", "that is a property: ask with get_config"),
    ],
)
def test_an_unknown_key_of_a_network_is_an_error_with_the_way_out(
    core: aioinfer.Core, ask: str, key: str, message: str
) -> None:
    with core.load_network(tiny_model(), "REFERENCE") as network:
        with pytest.raises(PropertyError, match=message) as caught:
            getattr(network, ask)(key)
        assert caught.value.key == key
        with pytest.raises(PropertyError, match="NETWORK_NAME takes no options, and 'DEVICE_ID'"):
            network.get_metric("NETWORK_NAME", DEVICE_ID="1")


def test_closing_a_network_that_failed_to_load_leaves_the_others_alone(
    core: aioinfer.Core,
) -> None:
    with core.load_network(tiny_model(), "REFERENCE") as healthy:
        with pytest.raises(aioinfer.errors.PropertyError) as refused:
            core.load_network(tiny_model(), "REFERENCE", {INPUT_SHAPES: {"x": (4, 77, 1)}})
        frames = [frame for frame, _ in traceback.walk_tb(refused.value.__traceback__)]
        selves = {id(item): item for item in (frame.f_locals.get("self") for frame in frames)}
        (failed,) = [
            item for item in selves.values() if isinstance(item, aioinfer.ExecutableNetwork)
        ]
        failed.close()
        np.testing.assert_array_equal(
            healthy.create_infer_request().infer_sync(X)["y"], expected(X)
        )
