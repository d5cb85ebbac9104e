"""What only onnxruntime knows: operators of its own, their types, maps, kernels of older opsets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.ort.asked_types import AskedTypes
from aioinfer.backends.ort.properties import SessionSettings
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value

FLOAT = TensorProto.FLOAT
DEVICES = ["ONNXRUNTIME", "HETERO:CPU,ONNXRUNTIME", "HETERO:REFERENCE,ONNXRUNTIME"]
ROWS = np.abs(np.random.default_rng(7).normal(size=(2, 3))).astype(np.float32)


def model_of(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> bytes:
    stored = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "foreign", inputs, outputs, stored)
    domains = [("", opset), ("com.microsoft", 1), ("ai.onnx.ml", 2)]
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def tensor(name: str, shape: list[Any], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def by_onnxruntime(model: bytes, inputs: Mapping[str, Any]) -> list[Any]:
    return list(onnxruntime.InferenceSession(model).run(None, dict(inputs)))


def quantised_sum() -> bytes:
    numbers = ["q", "scale", "zero", "q", "scale", "zero", "scale", "zero"]
    return model_of(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("QLinearAdd", numbers, ["sum"], domain="com.microsoft"),
            helper.make_node("DequantizeLinear", ["sum", "scale", "zero"], ["y"]),
        ],
        [tensor("x", ["n", 3])],
        [tensor("y", ["n", 3])],
        {"scale": np.float32(0.1).reshape(()), "zero": np.uint8(10).reshape(())},
    )


def fused_layers() -> bytes:
    skip = ["x", "x", "gain", "bias"]
    return model_of(
        [
            helper.make_node("SkipLayerNormalization", skip, ["a"], domain="com.microsoft"),
            helper.make_node("BiasGelu", ["a", "bias"], ["b"], domain="com.microsoft"),
            helper.make_node("Relu", ["b"], ["y"]),
        ],
        [tensor("x", ["n", 2, 3])],
        [tensor("y", ["n", 2, 3])],
        {"gain": np.ones(3, np.float32), "bias": np.full(3, 0.5, np.float32)},
    )


def tree() -> bytes:
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["t"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[-1.0, 2.0],
    )
    return model_of(
        [node, helper.make_node("Relu", ["t"], ["y"])],
        [tensor("x", ["n", 3])],
        [tensor("y", ["n", 1])],
    )


def classifier() -> bytes:
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=[1.0, -2.0, 3.0, -4.0, 5.0, -6.0],
            intercepts=[0.0, 1.0],
            classlabels_ints=[4, 9],
            post_transform="SOFTMAX",
        ),
        helper.make_node(
            "ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[4, 9]
        ),
    ]
    score = helper.make_tensor_type_proto(FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, score))
    outputs = [tensor("label", ["n"], TensorProto.INT64), helper.make_value_info("maps", maps)]
    return model_of(nodes, [tensor("x", ["n", 3])], outputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("model", "given"),
    [
        (quantised_sum(), ROWS),
        (fused_layers(), np.stack([ROWS, ROWS + 1])),
        (tree(), ROWS),
    ],
    ids=["quantised sum", "fused layers", "tree"],
)
def test_what_stands_behind_onnxruntimes_own_operators_runs_elsewhere(
    core: aioinfer.Core, model: bytes, given: np.ndarray, device: str
) -> None:
    with core.load_network(model, device) as network:
        for rows in (given, given[:1], given):
            found = network.create_infer_request().infer_sync({"x": rows})
            np.testing.assert_allclose(found["y"], by_onnxruntime(model, {"x": rows})[0], atol=1e-6)


@pytest.mark.parametrize("device", [*DEVICES, "AUTO", "REFERENCE"])
def test_a_sequence_of_maps_comes_out_as_a_list_of_dicts(core: aioinfer.Core, device: str) -> None:
    with core.load_network(classifier(), device) as network:
        assert str(network.outputs[1].type) == "seq(map(int64,float32[]))"
        found = network.create_infer_request().infer_sync({"x": ROWS})
    label, maps = by_onnxruntime(classifier(), {"x": ROWS})
    assert found["label"].tolist() == label.tolist()
    assert [list(item) for item in found["maps"]] == [[4, 9], [4, 9]]
    for ours, theirs in zip(found["maps"], maps, strict=True):
        np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-5)


def test_a_map_goes_in_as_a_dict_and_nothing_else(core: aioinfer.Core) -> None:
    words = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, []))
    node = helper.make_node(
        "DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"]
    )
    model = model_of([node], [helper.make_value_info("x", words)], [tensor("y", [1, 3])])
    for device in ("ONNXRUNTIME", "REFERENCE"):
        with core.load_network(model, device) as network:
            request = network.create_infer_request()
            found = request.infer_sync({"x": {"c": 2.0, "a": 1.5}})["y"]
            assert (found.tolist(), found.dtype) == ([[1.5, 0.0, 2.0]], np.float32)
            with pytest.raises(TensorError, match=r"'x' is a list, and a dict is wanted: map"):
                request.infer_sync({"x": [1.0]})


def region_nodes() -> dict[str, tuple[Any, list[Any], dict[str, np.ndarray]]]:
    image = np.random.default_rng(3).normal(size=(1, 2, 8, 8)).astype(np.float32)
    boxes, numbered = [[0.0, 0.0, 5.0, 5.0]], [[0.0, 0.0, 0.0, 5.0, 5.0]]
    return {
        "RoiAlign": (
            helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2),
            [tensor("r", ["n", 4]), tensor("b", ["n"], TensorProto.INT64)],
            {"x": image, "r": np.array(boxes, np.float32), "b": np.zeros(1, np.int64)},
        ),
        "MaxRoiPool": (
            helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 2]),
            [tensor("r", ["n", 5])],
            {"x": image, "r": np.array(numbered, np.float32)},
        ),
        "GlobalLpPool": (helper.make_node("GlobalLpPool", ["x"], ["y"]), [], {"x": image}),
    }


@pytest.mark.parametrize("op_type", sorted(region_nodes()))
@pytest.mark.parametrize("device", ["ONNXRUNTIME", "HETERO:ONNXRUNTIME,CPU"])
def test_operators_that_newer_opsets_only_widen_keep_onnxruntimes_kernel(
    core: aioinfer.Core, op_type: str, device: str
) -> None:
    node, more, given = region_nodes()[op_type]
    model = model_of([node], [tensor("x", [1, 2, 8, 8]), *more], [tensor("y", ["n", 2, "h", "w"])])
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync(given)["y"]
    np.testing.assert_allclose(found, by_onnxruntime(model, given)[0], rtol=1e-5)


@pytest.mark.parametrize("op_type", ["RandomNormalLike", "RandomUniformLike", "Multinomial"])
def test_random_operators_run_on_onnxruntime(core: aioinfer.Core, op_type: str) -> None:
    is_drawn = op_type == "Multinomial"
    node = helper.make_node(
        op_type, ["x"], ["y"], seed=1.0, **({"sample_size": 3} if is_drawn else {})
    )
    output = tensor("y", [2, 3], TensorProto.INT32 if is_drawn else FLOAT)
    model = model_of([node], [tensor("x", [2, 3])], [output])
    with core.load_network(model, "ONNXRUNTIME") as network:
        found = network.create_infer_request().infer_sync({"x": ROWS})["y"]
    assert found.shape == (2, 3)
    assert found.dtype == (np.int32 if is_drawn else np.float32)
    assert np.isfinite(found).all()


def foreign_node(*types: TensorType | None) -> Node:
    graph = Graph("g")
    inputs = [Value(f"x{index}", known) for index, known in enumerate(types)]
    graph.inputs.extend(inputs)
    return graph.append(Node("Swirl", inputs, [Value("y")], name="node", domain="com.acme"))


def test_lengths_that_onnxruntime_has_made_up_are_open_and_answers_are_kept() -> None:
    asked = []

    def answer(model: Any, _settings: SessionSettings) -> list[tuple[str, list[Any]]]:
        asked.append(model)
        return [("tensor(float)", ["n", 3, "unk__0", None])]

    types = AskedTypes(answer, SessionSettings("CPUExecutionProvider"))
    for _ in range(2):
        node = foreign_node(TensorType(DType.FLOAT32, ("n", 3)))
        assert types.types_of(node, {"com.acme": 2}) == [
            TensorType(DType.FLOAT32, ("n", 3, None, None))
        ]
    assert len(asked) == 1
    assert asked[0].opsets == {"com.acme": 2}


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("tensor(bfloat16)", TensorType(DType.BFLOAT16)),
        ("tensor(string)", TensorType(DType.STRING)),
        ("seq(tensor(float))", None),
    ],
)
def test_a_rank_of_none_is_unknown(label: str, known: TensorType | None) -> None:
    types = AskedTypes(lambda *_: [(label, [])], SessionSettings("CPUExecutionProvider"))
    assert types.types_of(foreign_node(TensorType(DType.INT64, ())), {}) == [known]


def test_nothing_is_told_of_what_is_refused_or_of_unknown_inputs() -> None:
    def refuse(*_: Any) -> list[tuple[str, list[Any]]]:
        raise RuntimeError("no such operator")

    types = AskedTypes(refuse, SessionSettings("CPUExecutionProvider"))
    assert types.types_of(foreign_node(TensorType(DType.INT64, ())), {}) == ()
    assert types.types_of(foreign_node(None), {}) == ()
