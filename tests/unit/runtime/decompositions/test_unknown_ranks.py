"""onnxruntime's operators of values whose rank the file does not tell, as of a Swin."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from aioinfer import Core

SHAPE = np.array([2, 3, 4], np.int64)
X = np.random.default_rng(2).standard_normal((6, 4)).astype(np.float32)
CONSTANTS = {
    "bias": X[0],
    "scale": np.float32(0.02),
    "zero": np.uint8(120),
    "w": np.arange(16, dtype=np.uint8).reshape(4, 4),
}


def model(nodes: list[tuple[str, list[str], str]]) -> ModelProto:
    """Write x, reshaped to numbers that the run gives, and what follows."""
    made = [helper.make_node("Reshape", ["x", "shape"], ["free"], name="reshape")]
    for op_type, inputs, output in nodes:
        plain = op_type in ("QLinearMatMul", "QuantizeLinear", "DequantizeLinear", "Relu")
        domain = "" if plain else "com.microsoft"
        axis = {"axis": -1} if op_type == "QLinearConcat" else {}
        made.append(helper.make_node(op_type, inputs, [output], name=output, domain=domain, **axis))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, ["rank"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(np.asarray(item), name) for name, item in CONSTANTS.items()]
    graph = helper.make_graph(made, "ranks", inputs, [output], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


PAIR = ["scale", "zero"]
CHAINS = {
    "float": [("BiasGelu", ["free", "bias"], "g"), ("Relu", ["g"], "y")],
    "quantised": [
        ("QuantizeLinear", ["free", *PAIR], "q"),
        ("QLinearConcat", [*PAIR, "q", *PAIR, "q", *PAIR], "c"),
        ("QLinearAdd", ["c", *PAIR, "c", *PAIR, *PAIR], "s"),
        ("DequantizeLinear", ["s", *PAIR], "y"),
    ],
    "product": [
        ("QuantizeLinear", ["free", *PAIR], "q"),
        ("QLinearMatMul", ["q", *PAIR, "w", *PAIR, *PAIR], "m"),
        ("DequantizeLinear", ["m", *PAIR], "y"),
    ],
    "two free factors": [
        ("QuantizeLinear", ["free", *PAIR], "q"),
        ("QLinearMul", ["q", *PAIR, "zero", *PAIR, *PAIR], "r"),
        ("QLinearMatMul", ["w", *PAIR, "r", *PAIR, *PAIR], "m"),
        ("DequantizeLinear", ["m", *PAIR], "y"),
    ],
}


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("name", CHAINS)
def test_element_types_are_told_without_ranks(core: Core, name: str, device: str) -> None:
    made = model(CHAINS[name])
    for shape in (SHAPE, np.array([3, 4, 2]), np.array([1, 6, 4])):
        if name in ("float", "product") and shape[-1] != 4:
            continue
        if name == "two free factors":
            shape = np.array([len(X) * 4 // (4 * shape[0]), 4, shape[0]])
        given = {"x": X, "shape": shape.astype(np.int64)}
        (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, given)
        with core.load_network(made, device) as network:
            found = network.create_infer_request().infer_sync(given)["y"]
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, atol=2e-5 if name == "float" else 0.021)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_places_of_the_largest_are_integers_without_a_rank(core: Core, device: str) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["free"]),
        helper.make_node("BiasGelu", ["free", "bias"], ["g"], domain="com.microsoft"),
        helper.make_node("TopK", ["g", "k"], ["values", "places"]),
        helper.make_node("Add", ["places", "k"], ["y"]),
    ]
    made = model([])
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    made.graph.initializer.append(numpy_helper.from_array(np.array([2]), "k"))
    given = {"x": X, "shape": SHAPE}
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, given)
    with core.load_network(made, device) as network:
        found = network.create_infer_request().infer_sync(given)["y"]
    np.testing.assert_array_equal(found, wanted)
