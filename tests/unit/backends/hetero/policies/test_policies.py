"""PARTITION_POLICY from end to end: what is cut, what is said of it, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.hetero.policies.measured_times import joined_places, seconds_of
from aioinfer.backends.hetero.policies.policy import Expected
from aioinfer.errors import DeviceError, PropertyError
from aioinfer.runtime.costs import crossing_bytes, node_cost
from aioinfer.runtime.onnx_reader import read_model
from presence import skip_if_missing
from unit.backends.hetero.small_graphs import arrays, graph, on_one_device

TWO = "HETERO:REFERENCE.0,REFERENCE.1"
CHAIN = "a@0 = Relu(p)\nb@0 = Exp(a)\nc@0 = Neg(b)\nd@0 = Abs(c)"
DIAMOND = (
    "a@0 = Relu(p)\nb@0 = Exp(a)\nc@0 = Sigmoid(b)\nd@0 = Tanh(a)\ne@0 = Exp(d)\nf@0 = Add(c, e)"
)
SECOND = {"REFERENCE": dict.fromkeys("abcdef", 1.0)}
"""Of each node: beside that, nothing that crosses counts."""


def divided(core: aioinfer.Core, text: str, outputs: str, config: dict[str, Any]) -> Any:
    return core.divide_network(graph(text, outputs), TWO, config).partition


def parts(partition: Any) -> list[tuple[str, str]]:
    return [
        (part.device, "".join(node.name for node in part.nodes)) for part in partition.subgraphs
    ]


def test_a_pipeline_is_cut_by_what_nodes_took(core: aioinfer.Core) -> None:
    times = {"REFERENCE": {"a": 3.0, "b": 1.0, "c": 2.0, "d": 2.0}}
    config = {"PARTITION_POLICY": "PIPELINE", "NODE_TIMES": times}
    division = core.divide_network(graph(CHAIN, "d"), TWO, config)
    assert parts(division.partition) == [("REFERENCE.0", "ab"), ("REFERENCE.1", "cd")]
    text = division.explain()
    assert "pipeline of 2 stages, measured on REFERENCE.0, REFERENCE.1: the bottleneck is" in text
    assert "stage 0 on REFERENCE.0: 2 nodes, 4 s" in text
    assert "b (Exp)   stage 0 of the pipeline" in text
    with core.load_network(graph(CHAIN, "d"), TWO, config) as network:
        assert network.explain() == text
        result = network.create_infer_request().infer_sync(arrays())
    expected = on_one_device(core, graph(CHAIN, "d"), arrays())
    np.testing.assert_array_equal(result["d"], expected["d"])


# The Relu would be computed at the end of the product, so the cut is behind it, not before.
def test_what_devices_compute_as_one_is_not_cut_apart(core: aioinfer.Core) -> None:
    text = "a@0 = Softmax(p)\nb@0 = Relu(a)\nc@0 = Softmax(b)\nd@0 = Relu(c)"
    config = {
        "PARTITION_POLICY": "PIPELINE",
        "NODE_TIMES": {"REFERENCE": {"a": 3.0, "b": 3.0, "c": 1.0, "d": 1.0}},
    }
    partition = divided(core, text, "d", config)
    assert parts(partition) == [("REFERENCE.0", "ab"), ("REFERENCE.1", "cd")]


def test_openvinos_name_means_the_same(core: aioinfer.Core) -> None:
    given = divided(core, CHAIN, "d", {"MODEL_DISTRIBUTION_POLICY": {"PIPELINE_PARALLEL"}})
    own = divided(core, CHAIN, "d", {"PARTITION_POLICY": "pipeline"})
    assert given == own
    assert isinstance(given.expected, Expected)
    assert divided(core, CHAIN, "d", {"MODEL_DISTRIBUTION_POLICY": ""}).expected is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"PARTITION_POLICY": "FASTEST"}, "one of 'PRIORITY', 'PIPELINE', 'LATENCY'"),
        ({"MODEL_DISTRIBUTION_POLICY": "TENSOR_PARALLEL"}, "no layer is divided"),
        (
            {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL", "PARTITION_POLICY": "LATENCY"},
            "disagree",
        ),
        ({"NODE_TIMES": {"CPU": {"a": -1.0}}}, "none below 0"),
        ({"NODE_TIMES": {"CPU": [3]}}, "3 is no entry"),
        ({"DEVICE_SPEEDS": {"CPU": {"GFLOPS": 0}}}, "each over 0"),
        ({"DEVICE_SPEEDS": {"CPU": {"SPEED": 1}}}, "GFLOPS"),
        ({"DEVICE_MEMORY_LIMIT": {"CPU": "much"}}, "bytes"),
        (
            {"DEVICE_MEMORY_LIMIT": {"REFERENCE": 8}},
            "bounds the stages of PARTITION_POLICY='PIPELINE', and 'PRIORITY' would not",
        ),
        (
            {"DEVICE_MEMORY_LIMIT": {"REFERENCE": 8}, "PARTITION_POLICY": "LATENCY"},
            "'LATENCY' would not keep to it; give that policy, or .* AFFINITY",
        ),
        (
            {"NODE_TIMES": {"REFERENCE": {"a": 1.0}}},
            "NODE_TIMES is what other policies .* give 'PIPELINE' or 'LATENCY', or leave",
        ),
        (
            {"DEVICE_SPEEDS": {"REFERENCE": {"GFLOPS": 1}}, "PARTITION_POLICY": "PRIORITY"},
            "DEVICE_SPEEDS is what other policies",
        ),
    ],
)
def test_a_bad_value_is_refused(core: aioinfer.Core, config: dict[str, Any], message: str) -> None:
    with pytest.raises(PropertyError, match=message):
        divided(core, CHAIN, "d", config)


def test_too_little_memory_says_what_is_needed(core: aioinfer.Core) -> None:
    config = {"PARTITION_POLICY": "PIPELINE", "DEVICE_MEMORY_LIMIT": {"REFERENCE": 8}}
    with pytest.raises(DeviceError, match=r"'a' alone 12, and there is room for REFERENCE\.0: 8"):
        divided(core, "a@0 = Mul(p, k)", "a", config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DEVICE_MEMORY_LIMIT", {"REFERENCE.7": 100}),
        ("DEVICE_SPEEDS", {"CUDA": {"GFLOPS": 1}}),
        ("NODE_TIMES", {"CUDA": {"a": 1.0}}),
    ],
)
def test_a_policy_that_is_told_of_a_device_elsewhere_says_which_it_has(
    core: aioinfer.Core, key: str, value: dict[str, Any]
) -> None:
    with pytest.raises(PropertyError, match=f"{key} names .*not among its devices") as raised:
        divided(core, CHAIN, "d", {"PARTITION_POLICY": "PIPELINE", key: value})
    assert raised.value.key == key


def test_memory_moves_a_stage(core: aioinfer.Core) -> None:
    text = "a@0 = Mul(p, k1)\nb@0 = Neg(a)\nc@0 = Mul(b, k2)\nd@0 = Add(c, c)"
    limit = {"REFERENCE.0": 12, "REFERENCE.1": 12}
    config = {"PARTITION_POLICY": "PIPELINE", "DEVICE_MEMORY_LIMIT": limit}
    partition = divided(core, text, "d", config)
    assert [device for device, _ in parts(partition)] == ["REFERENCE.0", "REFERENCE.1"]
    assert all(stage.weight_bytes == 12 for stage in partition.expected.outcome.stages)


def test_a_query_says_which_stage_a_node_is_in(core: aioinfer.Core) -> None:
    config = {"PARTITION_POLICY": "PIPELINE"}
    answers = core.query_network(graph(CHAIN, "d"), TWO, config)
    assert {answer.reason for answer in answers.values()} == {
        "on REFERENCE.0, stage 0 of the pipeline"
    }


def test_who_is_asked_for_stays_and_the_others_find_their_stage(core: aioinfer.Core) -> None:
    config = {
        "PARTITION_POLICY": "PIPELINE",
        "AFFINITY": {"d": "REFERENCE.1"},
        "NODE_TIMES": {"REFERENCE": dict.fromkeys("abcd", 1.0)},
    }
    partition = divided(core, CHAIN, "d", config)
    placed = {
        node.name: (part.device, node.reason) for part in partition.subgraphs for node in part.nodes
    }
    assert placed["d"] == ("REFERENCE.1", "asked for by AFFINITY")


def test_branches_run_side_by_side_for_the_time_of_one_run(core: aioinfer.Core) -> None:
    config = {"PARTITION_POLICY": "LATENCY", "NODE_TIMES": SECOND}
    with core.load_network(graph(DIAMOND, "f"), TWO, config) as network:
        placed = {
            node.name: part.device for part in network.partition.subgraphs for node in part.nodes
        }
        assert placed["b"] == placed["c"] != placed["d"] == placed["e"]
        assert "branches, measured on REFERENCE.0, REFERENCE.1: 4 s a run, 6 s on" in (
            network.explain()
        )
        result = network.create_infer_request().infer_sync(arrays())
    expected = on_one_device(core, graph(DIAMOND, "f"), arrays())
    np.testing.assert_array_equal(result["f"], expected["f"])


def test_without_a_gain_branches_stay_together(core: aioinfer.Core) -> None:
    partition = divided(core, DIAMOND, "f", {"PARTITION_POLICY": "LATENCY"})
    assert parts(partition) == [("REFERENCE.0", "abcdef")]
    assert "would not end sooner" in partition.subgraphs[0].nodes[0].reason


def test_a_profile_gives_the_times(core: aioinfer.Core) -> None:
    model = read_model(graph(CHAIN, "d"))
    with core.load_network(model, "REFERENCE", {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        entries = []
        for _ in range(3):
            request.infer_sync(arrays())
            entries += request.profiling()
    config = {"PARTITION_POLICY": "PIPELINE", "NODE_TIMES": {"REFERENCE": entries}}
    expected = core.divide_network(model, TWO, config).partition.expected
    assert expected.measured_devices == ("REFERENCE.0", "REFERENCE.1")
    (stage,) = expected.outcome.stages
    assert 0 < stage.seconds < 10


def test_the_operations_of_a_node_are_those_of_its_formula() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "m"], ["y"], name="product"),
    ]
    matrix = numpy_helper.from_array(np.zeros((256, 10), np.float32), "m")
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weights, matrix]),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    model = read_model(proto.SerializeToString())
    costs = {node.name: node_cost(node, {}) for node in model.graph.nodes}
    assert costs["conv"].flop == 2 * 4 * 64 * 27
    assert costs["conv"].bytes == 4 * (3 * 64 + 4 * 27 + 4 * 64)
    assert (costs["relu"].flop, costs["relu"].bytes) == (256, 2 * 4 * 256)
    assert (costs["flat"].flop, costs["flat"].bytes) == (0, 0)
    assert costs["product"].flop == 2 * 256 * 10
    assert crossing_bytes(model.graph, {}) == [4 * 192, 1024, 1024, 1024, 40]
    listed = list(model.graph.nodes)
    assert joined_places(listed, []) == [1]


def test_what_a_device_leaves_to_numpy_counts_as_that(core: aioinfer.Core) -> None:
    for name in ("CPU", "ONNXRUNTIME"):
        skip_if_missing(core, name)
    proto, devices = (
        graph("a@0 = Relu(p)\nb@0 = Trilu(a)", "b", shape=(4, 1024, 1024)),
        "CPU,ONNXRUNTIME",
    )
    latency = core.divide_network(proto, f"HETERO:{devices}", {"PARTITION_POLICY": "LATENCY"})
    assert parts(latency.partition)[-1][0] == "ONNXRUNTIME"
    assert parts(core.divide_network(proto, f"HETERO:{devices}").partition) == [("CPU", "ab")]


def test_a_group_that_ran_as_one_stays_together() -> None:
    from aioinfer.backends.hetero.policies.measured_times import MeasuredTimes

    nodes = list(read_model(graph(CHAIN, "d")).graph.nodes)
    times = MeasuredTimes(((("a", "b"), 2.0), (("c",), 1.0)), is_whole=True)
    assert seconds_of(nodes, times) == [2.0, 0.0, 1.0, 0.0]
    assert 1 in joined_places(nodes, [times])
    partly = MeasuredTimes.of({"c": 1.0})
    assert seconds_of(nodes, partly) == [None, None, 1.0, None]


@pytest.mark.parametrize("policy", ["PIPELINE", "LATENCY"])
def test_an_exported_network_still_says_what_is_expected(core: aioinfer.Core, policy: str) -> None:
    times = [(("a", "b"), 1.0), (("c",), 2.0), (["d"], 1.0)]
    config = {"PARTITION_POLICY": policy, "NODE_TIMES": {"REFERENCE": times}}
    with core.load_network(graph(CHAIN, "d"), TWO, {**config, "EXPORTABLE": True}) as network:
        text, blob = network.explain(), network.export()
        expected = network.create_infer_request().infer_sync(arrays())
    with core.import_network(blob) as imported:
        assert imported.explain() == text
        assert imported.get_config("NODE_TIMES")["REFERENCE"][0] == (("a", "b"), 1.0)
        result = imported.create_infer_request().infer_sync(arrays())
    np.testing.assert_array_equal(result["d"], expected["d"])
    other: dict[str, Any] = {"AFFINITY": {"a": "REFERENCE.0"}}
    with pytest.raises(PropertyError, match=r"AFFINITY=.* cannot be given to an import"):
        core.import_network(blob, config=other)
    other = {"PARTITION_POLICY": "LATENCY" if policy == "PIPELINE" else "PIPELINE"}
    with pytest.raises(PropertyError, match=r"PARTITION_POLICY=.* cannot be given to an import"):
        core.import_network(blob, config=other)
