"""What HETERO accepts, what it tells its devices, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import aioinfer
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.errors import (
    DeviceError,
    PropertyError,
    TensorError,
    UnsupportedOpError,
)
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.testing import MockDevices
from unit.backends.hetero.small_graphs import affinity, arrays, graph, on_one_device
from unit.runtime.models import tiny_model

CHAIN = "a@0 = Relu(p)\nb@1 = Neg(a)\nc@0 = Exp(b)"
REFERENCES = "HETERO:REFERENCE.0,REFERENCE.1"
MOCKS = "HETERO:MOCK.0,MOCK.1"


def load(
    core: aioinfer.Core, device: str = REFERENCES, **config: object
) -> aioinfer.ExecutableNetwork:
    wanted = {"AFFINITY": affinity(CHAIN, "REFERENCE"), **config}
    return core.load_network(graph(CHAIN, "c"), device, wanted)


# The list of devices


def test_hetero_without_devices_says_how_to_name_them(core: aioinfer.Core) -> None:
    with pytest.raises(DeviceError, match="'HETERO:CUDA,CPU', or in MULTI_DEVICE_PRIORITIES"):
        core.load_network(graph(CHAIN, "c"), "HETERO")
    with pytest.raises(DeviceError, match="HETERO needs devices"):
        core.query_network(graph(CHAIN, "c"), "HETERO")


@pytest.mark.parametrize("key", ["MULTI_DEVICE_PRIORITIES", "TARGET_FALLBACK"])
def test_the_devices_may_be_a_property(core: aioinfer.Core, key: str) -> None:
    with load(core, "HETERO", **{key: "REFERENCE.0,REFERENCE.1"}) as network:
        assert network.execution_devices == ("REFERENCE.0", "REFERENCE.1")
        assert network.get_config("MULTI_DEVICE_PRIORITIES") == "REFERENCE.0,REFERENCE.1"
    core.set_config("HETERO", {key: "REFERENCE.1,REFERENCE.0"})
    assert core.get_config("HETERO", key) == "REFERENCE.1,REFERENCE.0"
    assert core.load_network(graph(CHAIN, "c"), "HETERO").execution_devices == ("REFERENCE.1",)


def test_two_lists_that_disagree_are_refused(core: aioinfer.Core) -> None:
    with pytest.raises(PropertyError, match="disagree"):
        load(core, REFERENCES, TARGET_FALLBACK="REFERENCE.1")
    with pytest.raises(PropertyError, match="disagree"):
        load(core, REFERENCES, MULTI_DEVICE_PRIORITIES="REFERENCE.1")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("HETERO:REFERENCE.0,CUDDA", "unknown device 'CUDDA'"),
        ("HETERO:REFERENCE.7", "has no device '7'"),
        ("HETERO:", "is not NAME"),
        ("HETERO:REFERENCE.0,REFERENCE.0", "lists REFERENCE.0 twice"),
        ("HETERO:REFERENCE.0(2)", r"cannot take REFERENCE.0\(2\)"),
        ("HETERO:HETERO", "would hold itself"),
        ("HETERO.1", "HETERO has no device '1'"),
    ],
)
def test_a_bad_list_is_refused(core: aioinfer.Core, device: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        core.load_network(graph(CHAIN, "c"), device)


def test_hetero_is_no_device_of_its_own(core: aioinfer.Core) -> None:
    assert {"REFERENCE.0", "REFERENCE.1"} <= set(core.available_devices)
    assert "HETERO" not in core.available_devices
    assert core.get_metric("HETERO", "FULL_DEVICE_NAME") == "HETERO"
    assert core.get_metric("HETERO", "OPTIMIZATION_CAPABILITIES") == ["EXPORT_IMPORT"]
    assert "RANGE_FOR_STREAMS" not in core.get_metric("HETERO", "SUPPORTED_METRICS")
    with pytest.raises(DeviceError, match="ask and set the bare 'HETERO'"):
        core.get_config(REFERENCES, "PERFORMANCE_HINT")


# Properties


def test_what_hetero_is_given_goes_down_to_every_device(core: aioinfer.Core) -> None:
    with load(core, PERFORMANCE_HINT="THROUGHPUT", PERF_COUNT=True) as network:
        for inner in network.networks:
            assert inner.get_config("PERFORMANCE_HINT") == "THROUGHPUT"
            assert inner.get_config("PERF_COUNT") is True


def test_properties_of_one_device_reach_only_that_one(core: aioinfer.Core) -> None:
    properties = {"REFERENCE": {"NUM_STREAMS": 2}, "REFERENCE.1": {"NUM_STREAMS": 3}}
    with load(core, DEVICE_PROPERTIES=properties) as network:
        assert [inner.get_config("NUM_STREAMS") for inner in network.networks] == [2, 3, 2]
        told = network.get_metric("DEVICE_PROPERTIES")
        assert network.get_config("DEVICE_PROPERTIES") == told
        assert told["REFERENCE.0"]["NUM_STREAMS"] == 2
        assert told["REFERENCE.1"]["NUM_STREAMS"] == 3


def test_precedence_from_nested_to_default(core: aioinfer.Core) -> None:
    def hints(**config: object) -> list[str]:
        with load(core, **config) as network:
            return [str(inner.get_config("PERFORMANCE_HINT")) for inner in network.networks[:2]]

    assert hints() == ["LATENCY", "LATENCY"]
    core.set_config(None, {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"})
    assert hints() == ["CUMULATIVE_THROUGHPUT"] * 2
    core.set_config("REFERENCE", {"PERFORMANCE_HINT": "THROUGHPUT"})
    assert hints() == ["THROUGHPUT"] * 2
    core.set_config("HETERO", {"PERFORMANCE_HINT": "LATENCY"})
    assert hints() == ["LATENCY"] * 2
    assert hints(PERFORMANCE_HINT="CUMULATIVE_THROUGHPUT") == ["CUMULATIVE_THROUGHPUT"] * 2
    nested = {"REFERENCE.1": {"PERFORMANCE_HINT": "LATENCY"}}
    assert hints(PERFORMANCE_HINT="THROUGHPUT", DEVICE_PROPERTIES=nested) == [
        "THROUGHPUT",
        "LATENCY",
    ]


@pytest.mark.parametrize("key", ["NUM_STREAMS", "INFERENCE_NUM_THREADS", "DEVICE_ID"])
def test_keys_of_single_devices_are_refused_with_their_place(core: aioinfer.Core, key: str) -> None:
    message = rf"HETERO has no {key} of its own.*DEVICE_PROPERTIES"
    for call in (
        lambda: load(core, **{key: 2}),
        lambda: core.set_config("HETERO", {key: 2}),
        lambda: core.get_config("HETERO", key),
    ):
        with pytest.raises(PropertyError, match=message):
            call()


def test_runs_of_a_divided_model_stay_on_no_callers_thread_and_no_threshold_says_so(
    core: aioinfer.Core,
) -> None:
    key, where = "INLINE_THRESHOLD_US", "none of that on its caller's thread"
    for call in (
        lambda: load(core, **{key: 0}),
        lambda: core.set_config("HETERO", {key: 50}),
        lambda: core.get_config("HETERO", key),
    ):
        with pytest.raises(PropertyError, match=f"HETERO has no {key}.*{where}; leave it out") as e:
            call()
        assert e.value.key == key
    with pytest.raises(PropertyError, match=rf"{key} of REFERENCE\.1 would say nothing.*{where}"):
        load(core, DEVICE_PROPERTIES={"REFERENCE.1": {key: 50}})
    with load(core, DEVICE_PROPERTIES={"REFERENCE.1": {key: "0"}}) as network:
        assert isinstance(network, HeteroNetwork)
    core.set_config(None, {key: 50})
    load(core).close()


def test_a_part_has_no_way_for_runs_that_stay_on_their_callers_threads(core: aioinfer.Core) -> None:
    with core.load_network(graph("a@0 = Relu(p)", "a"), REFERENCES) as network:
        assert isinstance(network, HeteroNetwork)
        (part,) = network.networks
        assert part.get_config("INLINE_THRESHOLD_US") == 0
        assert part.inline_route is None


def test_a_network_has_no_streams_of_its_own(core: aioinfer.Core) -> None:
    with load(core) as network, pytest.raises(PropertyError, match="no property 'NUM_STREAMS'"):
        network.get_config("NUM_STREAMS")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"PERFORMANCE_HITN": "LATENCY"}, "did you mean 'PERFORMANCE_HINT'"),
        ({"AFFINITY": ["a"]}, "a mapping node name -> device is wanted"),
        ({"DEVICE_PROPERTIES": {"REFERENCE.0": 3}}, "a mapping is wanted"),
        ({"DEVICE_PROPERTIES": {"REFERENCE.5": {}}}, "names 'REFERENCE.5', which is not among"),
        (
            {"DEVICE_PROPERTIES": {"REFERENCE.1": {"NUM_STREAM": 3}}},
            "REFERENCE.1 has no property 'NUM_STREAM'; did you mean 'NUM_STREAMS'",
        ),
        ({"INFERENCE_PRECISION_HINT": "bf16"}, "leave INFERENCE_PRECISION_HINT at 'f32'"),
    ],
)
def test_bad_properties_are_refused(
    core: aioinfer.Core, config: dict[str, object], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        load(core, **config)


@pytest.mark.parametrize("key", ["AFFINITY", "DEVICE_PROPERTIES", "INPUT_SHAPES"])
def test_what_belongs_to_one_network_cannot_be_set_for_all(core: aioinfer.Core, key: str) -> None:
    with pytest.raises(PropertyError, match="belongs to one network"):
        core.set_config("HETERO", {key: {}})


def test_a_device_that_fails_to_load_closes_those_that_were_loaded(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[aioinfer.ExecutableNetwork] = []
    loading_on = aioinfer.Core.loading_on

    def failing(self: aioinfer.Core, device: str, config: Any = None) -> Any:
        load = loading_on(self, device, config)

        def load_or_fail(model: aioinfer.Model) -> aioinfer.ExecutableNetwork:
            if device == "REFERENCE.1":
                raise DeviceError("REFERENCE.1 is lost")
            loaded.append(load(model))
            return loaded[-1]

        return load_or_fail

    monkeypatch.setattr(aioinfer.Core, "loading_on", failing)
    with pytest.raises(DeviceError, match="is lost"):
        core.load_network(
            graph(CHAIN, "c"),
            "HETERO:REFERENCE.0,REFERENCE.1",
            {"AFFINITY": affinity(CHAIN, "REFERENCE")},
        )
    assert [network.is_closed for network in loaded] == [True]


# Which device takes a node


def test_the_first_device_that_supports_a_node_owns_it(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[0].refused_ops["Neg"] = "it cannot count below zero"
    answers = core.query_network(graph(CHAIN, "c"), MOCKS)
    assert all(answer.supported for answer in answers.values())
    assert answers["a"].reason == "on MOCK.0, first device in the list that supports it"
    assert answers["b"].reason == (
        "on MOCK.1, first device in the list that supports it "
        "(refused by MOCK.0: it cannot count below zero)"
    )
    with core.load_network(graph(CHAIN, "c"), MOCKS) as network:
        devices = [subgraph.device for subgraph in network.partition.subgraphs]
        assert devices == ["MOCK.0", "MOCK.1", "MOCK.0"]


def test_a_node_nobody_takes_is_an_error_with_every_device_s_reason(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    for index, device in enumerate(mock.devices):
        device.refused_ops["Neg"] = f"reason {index}"
    with pytest.raises(UnsupportedOpError, match=r"Neg \(node 'b'\): MOCK.0: reason 0; MOCK.1: r"):
        core.load_network(graph(CHAIN, "c"), MOCKS)
    answers = core.query_network(graph(CHAIN, "c"), MOCKS)
    assert not answers["b"].supported
    assert answers["b"].reason == "MOCK.0: reason 0; MOCK.1: reason 1"
    assert answers["a"].supported


def test_an_affinity_to_a_device_that_refuses_is_an_error(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    mock[1].refused_ops["Neg"] = "it cannot count below zero"
    with pytest.raises(UnsupportedOpError, match=r"below zero \(asked for by AFFINITY"):
        core.load_network(graph(CHAIN, "c"), MOCKS, {"AFFINITY": {"b": "MOCK.1"}})


def test_an_affinity_in_the_model_is_kept_and_the_rest_goes_by_order(
    core: aioinfer.Core, mock: MockDevices
) -> None:
    model = read_model(graph(CHAIN, "c"))
    model.node("b").affinity = "MOCK.1"
    with core.load_network(model, MOCKS) as network:
        reasons = {node.name: node.reason for s in network.partition.subgraphs for node in s.nodes}
    assert reasons == {
        "a": "no affinity given; first device in the list that supports it",
        "b": "asked for by the node's affinity",
        "c": "no affinity given; first device in the list that supports it",
    }
    assert model.node("a").affinity is None


def test_passes_never_merge_nodes_of_different_devices(core: aioinfer.Core) -> None:
    text = "a@0 = Relu(p)\nb@1 = Relu(p)\nc@0 = Add(a, b)"
    proto = graph(text, "c")
    with core.load_network(proto, REFERENCES, {"AFFINITY": affinity(text, "REFERENCE")}) as apart:
        assert [node.name for s in apart.partition.subgraphs for node in s.nodes] == ["b", "a", "c"]
    with core.load_network(proto, REFERENCES) as together:
        nodes = together.partition.subgraphs[0].nodes
        assert [node.original_nodes for node in nodes] == [("a", "b"), ("c",)]


def test_the_nodes_that_a_node_of_the_file_became_go_where_it_was_asked_to_go(
    core: aioinfer.Core,
) -> None:
    # Softmax before opset 13 flattened its input, so the converter puts nodes around it.
    proto = parser.parse_model(
        """
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[2,3,4] x) => (float[2,3,4] y) {
            [relu] a = Relu (x)
            [softmax] y = Softmax <axis = 1> (a)
        }
        """
    )
    assert list(core.query_network(proto, "REFERENCE")) == ["relu", "softmax"]
    assert list(core.query_network(proto, REFERENCES)) == ["relu", "softmax"]
    config = {"AFFINITY": {"softmax": "REFERENCE.1"}}
    with core.load_network(proto, REFERENCES, config) as network:
        places = {
            node.original_nodes: part.device
            for part in network.partition.subgraphs
            for node in part.nodes
        }
        assert len(list(network.runtime_graph().nodes)) > 2
    assert places == {("relu",): "REFERENCE.0", ("softmax",): "REFERENCE.1"}


# Shapes ahead of time


def test_input_shapes_of_the_whole_are_compiled_ahead_in_every_subgraph(
    core: aioinfer.Core,
) -> None:
    proto = graph(CHAIN, "c", shape=["n", 3])
    config = {
        "AFFINITY": affinity(CHAIN, "REFERENCE"),
        "INPUT_SHAPES": [{"p": (2, 3)}, {"p": (5, 3)}],
    }
    with core.load_network(proto, REFERENCES, config) as network:
        given = [inner.get_config("INPUT_SHAPES") for inner in network.networks]
        assert given == [
            ({"p": (2, 3)}, {"p": (5, 3)}),
            ({"a": (2, 3)}, {"a": (5, 3)}),
            ({"b": (2, 3)}, {"b": (5, 3)}),
        ]
        results = network.create_infer_request().infer_sync(arrays())
        np.testing.assert_array_equal(results["c"], on_one_device(core, proto, arrays())["c"])


def test_input_shapes_that_contradict_the_model_are_refused(core: aioinfer.Core) -> None:
    with pytest.raises(TensorError, match="cannot have the shape"):
        load(core, INPUT_SHAPES={"p": (2, 4)})
    with pytest.raises(TensorError, match="no input 'q'"):
        load(core, INPUT_SHAPES={"q": (2, 3)})


# Diagrams, blobs


def test_diagrams_are_written_where_they_are_wanted(core: aioinfer.Core, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    load(core, DUMP_GRAPH=str(folder)).close()
    assert sorted(path.name for path in folder.iterdir()) == [
        "hetero_affinity_small.dot",
        "hetero_affinity_small.svg",
        "hetero_subgraphs_small.dot",
        "hetero_subgraphs_small.svg",
    ]


def test_diagrams_that_cannot_be_written_are_an_error(core: aioinfer.Core, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PropertyError, match="DUMP_GRAPH"):
        load(core, DUMP_GRAPH=str(tmp_path / "file"))


# https://github.com/openvinotoolkit/openvino/issues/22338: a device that keeps nothing refuses it.
def test_a_folder_for_the_cache_may_be_given_beside_devices_that_keep_nothing(
    core: aioinfer.Core, mock: MockDevices, tmp_path: Path
) -> None:
    wanted = {"relu": "REFERENCE", "add": "MOCK.0"}
    config = {"CACHE_DIR": str(tmp_path), "AFFINITY": wanted}
    with core.load_network(tiny_model(), "HETERO:REFERENCE,MOCK.0", config) as network:
        assert network.execution_devices == ("REFERENCE.0", "MOCK.0")
        assert not network.get_metric("LOADED_FROM_CACHE")
