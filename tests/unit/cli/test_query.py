import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import aioinfer as ai
from aioinfer.cli import query
from unit.backends.cuda.planning import cuda_core

Run = Callable[..., Any]

HETERO = "HETERO:REFERENCE.0,REFERENCE.1"
CUT = ["--affinity", "conv2=REFERENCE.1"]


@pytest.fixture
def custom(tmp_path: Path) -> str:
    """Relu, then an operator that no device has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="relu"),
        helper.make_node("Swirl", ["y"], ["z"], name="swirl", domain="com.acme"),
    ]
    x, z = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xz")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    graph = helper.make_graph(nodes, "custom", [x], [z])
    path = tmp_path / "custom.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


def test_a_supported_model_is_told_node_by_node(aioinfer: Run, digits: str) -> None:
    finished = aioinfer("query", digits, "-d", "REFERENCE.1")
    assert (finished.code, finished.err) == (0, "")
    assert "norm3     BatchNormalization   yes" in finished.out
    assert "every node can run on REFERENCE.1" in finished.out


def test_an_unsupported_node_is_told_with_its_reason(aioinfer: Run, custom: str) -> None:
    finished = aioinfer("query", custom, "-d", "REFERENCE")
    assert finished.code == 1
    assert "com.acme::Swirl   NO" in finished.out
    assert "1 of 2 nodes cannot run on REFERENCE" in finished.out


def test_a_node_that_no_device_takes_has_the_reason_of_each(aioinfer: Run, custom: str) -> None:
    finished = aioinfer("query", custom, "-d", HETERO, "--json")
    document = json.loads(finished.out)
    assert (finished.code, document["supported"], document["partition"]) == (1, False, None)
    relu, swirl = document["nodes"]
    assert (relu["name"], relu["op"], relu["supported"]) == ("relu", "Relu", True)
    assert swirl["supported"] is False
    assert "REFERENCE.0:" in swirl["reason"]
    assert "REFERENCE.1:" in swirl["reason"]


def test_hetero_tells_the_partition(aioinfer: Run, digits: str) -> None:
    finished = aioinfer("query", digits, "-d", HETERO, *CUT, "-b", "4")
    assert finished.code == 0
    assert "14 nodes in 3 subgraphs" in finished.out
    assert "conv2 (Conv)  asked for by AFFINITY" in finished.out
    assert "1 -> 2  conv2  float32[4,32,8,8], 32.8 kB" in finished.out


def test_json_has_the_partition_in_bytes(aioinfer: Run, digits: str) -> None:
    document = json.loads(aioinfer("query", digits, "-d", HETERO, *CUT, "-b", "4", "--json").out)
    partition = document["partition"]
    assert [item["device"] for item in partition["subgraphs"]] == [
        "REFERENCE.0",
        "REFERENCE.1",
        "REFERENCE.0",
    ]
    assert [node["name"] for node in partition["subgraphs"][1]["nodes"]] == ["conv2"]
    assert [cut["bytes"] for cut in partition["cuts"]] == [4 * 16 * 64 * 4, 4 * 32 * 64 * 4]
    assert document["nodes"][3]["reason"] == "on REFERENCE.1, asked for by AFFINITY"


def test_without_shapes_an_open_batch_leaves_the_bytes_unknown(aioinfer: Run, digits: str) -> None:
    document = json.loads(aioinfer("query", digits, "-d", HETERO, *CUT, "--json").out)
    assert [cut["bytes"] for cut in document["partition"]["cuts"]] == [None, None]


def test_the_partition_is_drawn(aioinfer: Run, digits: str, tmp_path: Path) -> None:
    dot, svg = tmp_path / "cut.dot", tmp_path / "cut.svg"
    finished = aioinfer("query", digits, "-d", HETERO, *CUT, "--dot", str(dot), "--svg", str(svg))
    assert finished.code == 0
    assert f"wrote {svg}" in finished.out
    assert dot.read_text().startswith("digraph")
    assert "conv2" in dot.read_text()
    assert ET.parse(svg).getroot().tag.endswith("svg")


def test_the_steps_of_the_selection_are_printed(aioinfer: Run, digits: str) -> None:
    with ai.Core() as core:
        division = core.divide_network(digits, HETERO, {"AFFINITY": {"conv2": "REFERENCE.1"}})
        trace = division.selection_trace()
    assert "Failed to merge [conv2]" in trace
    assert "Plugin REFERENCE.1\n\nPossible roots: [conv2]\n1. Select root [conv2]\n" in trace
    finished = aioinfer("query", digits, "-d", HETERO, *CUT, "--trace")
    assert (finished.code, finished.err) == (0, "")
    assert trace in finished.out
    document = json.loads(aioinfer("query", digits, "-d", HETERO, *CUT, "--trace", "--json").out)
    assert document["selection_trace"] == trace
    assert "Select root" not in aioinfer("query", digits, "-d", HETERO, *CUT).out


def test_a_pipeline_says_what_its_stages_are_expected_to_take(aioinfer: Run, digits: str) -> None:
    arguments = ["-d", HETERO, "--config", "PARTITION_POLICY=PIPELINE"]
    finished = aioinfer("query", digits, *arguments)
    assert (finished.code, finished.err) == (0, "")
    assert "estimated: the bottleneck is REFERENCE.0 with" in finished.out
    document = json.loads(aioinfer("query", digits, *arguments, "--json").out)
    expected = document["partition"]["expected"]
    assert expected["policy"] == "PIPELINE"
    assert sum(stage["node_count"] for stage in expected["outcome"]["stages"]) == 14


def test_saved_subgraphs_compute_together_what_the_model_computes(
    aioinfer: Run, digits: str, heldout: str, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "parts"
    for _ in range(2):
        assert (
            aioinfer("query", digits, "-d", HETERO, *CUT, "--save-subgraphs", str(folder)).code == 0
        )
    paths = sorted(folder.iterdir())
    assert [path.name for path in paths] == [
        "000_REFERENCE.0.onnx",
        "001_REFERENCE.1.onnx",
        "002_REFERENCE.0.onnx",
    ]
    images = np.load(heldout)["images"][:4]
    with ai.Core() as core:
        whole = core.load_network(digits, "REFERENCE")
        expected = whole.create_infer_request().infer_sync(images)["logits"]
        values = {"image": images}
        for path in paths:
            network = core.load_network(path, "REFERENCE")
            inputs = {port.name: values[port.name] for port in network.inputs}
            values.update(network.create_infer_request().infer_sync(inputs))
    np.testing.assert_allclose(values["logits"], expected, rtol=1e-5)


def test_a_partition_is_planned_over_devices_that_are_not_there(
    aioinfer: Run, digits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "Core", cuda_core)
    drawn, parts = tmp_path / "cut.svg", tmp_path / "parts"
    arguments = ["-d", "HETERO:CUDA,CUDA.1,REFERENCE", "--affinity", "conv2=REFERENCE"]
    arguments += ["--svg", str(drawn), "--save-subgraphs", str(parts)]
    finished = aioinfer("query", digits, *arguments)
    assert (finished.code, finished.err) == (0, "")
    assert "14 nodes in 3 subgraphs" in finished.out
    assert "conv2 (Conv)  asked for by AFFINITY" in finished.out
    assert "conv2" in drawn.read_text()
    names = [path.name for path in sorted(parts.iterdir())]
    assert names == ["000_CUDA.onnx", "001_REFERENCE.onnx", "002_CUDA.onnx"]
    assert "every node can run on CUDA" in aioinfer("query", digits, "-d", "CUDA").out


def test_a_refused_node_leaves_nothing_to_draw(aioinfer: Run, custom: str, tmp_path: Path) -> None:
    finished = aioinfer("query", custom, "-d", HETERO, "--svg", str(tmp_path / "x"))
    assert (finished.code, finished.err) == (1, "")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("option", ["--dot", "--svg", "--save-subgraphs"])
def test_a_device_that_does_not_cut_has_no_partition(
    aioinfer: Run, digits: str, tmp_path: Path, option: str
) -> None:
    finished = aioinfer("query", digits, "-d", "REFERENCE", option, str(tmp_path / "x"))
    assert finished.code == 1
    assert "error: REFERENCE runs a model whole" in finished.err
    assert not (tmp_path / "x").exists()


def test_a_device_that_does_not_cut_has_no_steps(aioinfer: Run, digits: str) -> None:
    finished = aioinfer("query", digits, "-d", "REFERENCE", "--trace")
    assert finished.code == 1
    assert "error: REFERENCE runs a model whole" in finished.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "REFERENC"], "unknown device 'REFERENC'; did you mean 'REFERENCE'?"),
        (["-d", "REFERENCE.9"], "no device '9'"),
        (["-d", HETERO, "--affinity", "conv9=REFERENCE.0"], "conv9"),
        (["-d", HETERO, "--affinity", "conv2=CPU"], "CPU"),
        (["-d", "REFERENCE", "--affinity", "conv2=REFERENCE.0"], "AFFINITY"),
        (["-d", "REFERENCE", "--config", "NUM_STREAM=2"], "did you mean 'NUM_STREAMS'"),
        (["-d", "REFERENCE", "-shape", "image[1,2,8,8]"], "dimension 1 of 'image'"),
        (["-d", HETERO, "--svg", "/nowhere/cut.svg"], "'/nowhere/cut.svg': No such file"),
    ],
)
def test_an_error_is_one_line_that_names_the_thing(
    aioinfer: Run, digits: str, arguments: list[str], message: str
) -> None:
    finished = aioinfer("query", digits, *arguments)
    assert finished.code == 1
    assert finished.err.startswith("error: ")
    assert finished.err.count("\n") == 1
    assert message in finished.err
