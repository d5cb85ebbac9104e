"""What crosses a cut is what was promised, or the run ends with an error that says what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aioinfer
from aioinfer.backends.hetero.crossing import Crossing
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, SequenceType, TensorType

X = np.array([[1, -2, 3]], np.float32)
TWO_DEVICES = "HETERO:REFERENCE.0,REFERENCE.1"


def crossing(promised: Any) -> Crossing:
    return Crossing("v", 2, promised, "REFERENCE (subgraph 0)", "CPU (subgraph 1)")


@pytest.mark.parametrize(
    ("promised", "came"),
    [
        (TensorType(DType.FLOAT32, (1, 3)), X),
        (TensorType(DType.FLOAT32, ("n", 3)), X),
        (TensorType(DType.FLOAT32, None), X),
        (TensorType(DType.STRING, (2,)), np.array(["a", "b"], object)),
        (SequenceType(TensorType(DType.FLOAT32, None)), [X]),
        (SequenceType(TensorType(DType.FLOAT32, None)), []),
        (None, X),
        (None, [X]),
    ],
)
def test_what_was_promised_crosses(promised: Any, came: Any) -> None:
    crossing(promised).check(came)


@pytest.mark.parametrize(
    ("promised", "came", "text"),
    [
        (TensorType(DType.INT32, (1, 3)), X, r"float32\[1,3\]"),
        (TensorType(DType.FLOAT32, (3, 1)), X, r"float32\[1,3\]"),
        (TensorType(DType.FLOAT32, ("n", 4)), X, r"float32\[1,3\]"),
        (TensorType(DType.FLOAT32, ("n",)), X, r"float32\[1,3\]"),
        (TensorType(DType.FLOAT64, None), X, r"float32\[1,3\]"),
        (TensorType(DType.FLOAT32, (1, 3)), [X], "list"),
        (TensorType(DType.FLOAT32, (1, 3)), None, "None"),
        (SequenceType(TensorType(DType.INT64, None)), [X], r"list with float32\[1,3\]"),
        (SequenceType(TensorType(DType.FLOAT32, None)), X, r"float32\[1,3\]"),
    ],
)
def test_what_was_not_promised_is_refused(promised: Any, came: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text) as caught:
        crossing(promised).check(came)
    for part in ("'v'", "REFERENCE (subgraph 0)", "CPU (subgraph 1)", str(promised)):
        assert part in str(caught.value)


def lying_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Lie", ["x"], ["t"], "lie", domain="com.acme"),
        helper.make_node("Neg", ["t"], ["y"], "neg"),
    ]
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        value_info=[helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 3])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("lie", [lambda x: np.tile(x, (4, 4)), lambda x: x[0], lambda x: x[:0]])
def test_an_array_of_another_shape_reaches_no_other_device(
    core: aioinfer.Core, lie: Callable[[np.ndarray], np.ndarray]
) -> None:
    is_honest: list[bool] = []
    core.add_extension(aioinfer.Extension("Lie", lambda x: x if is_honest else lie(x), "com.acme"))
    affinity = {"AFFINITY": {"lie": "REFERENCE.0", "neg": "REFERENCE.1"}}
    with core.load_network(lying_model(), TWO_DEVICES, affinity) as network:
        with pytest.raises(TensorError, match=r"'t' .*REFERENCE.0.*REFERENCE.1.*float32\[1,3\]"):
            network.create_infer_request().infer_sync(X)
        is_honest.append(True)
        np.testing.assert_array_equal(network.create_infer_request().infer_sync(X)["y"], -X)


def test_a_length_that_only_onnx_tells_refuses_nothing(core: aioinfer.Core) -> None:
    """Onnx takes axes that it does not see for the first ones, and the steps for 1."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        m (float[3] x, int64[n] axes, int64[n] steps) => (float[k] y)
        <int64[1] starts = {2}, int64[1] ends = {-100}> {
            t = Slice (x, starts, ends, axes, steps)
            y = Neg (t)
        }""")
    for info in (*model.graph.input[1:], *model.graph.output):
        info.type.tensor_type.ClearField("shape")
    names = [node.name for node in core.read_model(model).graph.nodes]
    devices = ["REFERENCE.0", "REFERENCE.1"]
    affinity = {"AFFINITY": dict(zip(names, devices, strict=True))}
    given = {"x": X[0], "axes": np.array([0]), "steps": np.array([-2])}
    with core.load_network(model, TWO_DEVICES, affinity) as network:
        found = network.create_infer_request().infer_sync(given)["y"]
    np.testing.assert_array_equal(found, [-3, -1])


def test_a_node_of_which_only_the_file_tells_the_rank_goes_where_no_rank_is_asked_for(
    core: aioinfer.Core,
) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        m (float[2,2,3,4] x, int64[n] axes, float[3] scale, float[3] bias)
            => (float[2,3,4] s, float[a,b,c] y) {
            s = ReduceMax <keepdims = 0> (x, axes)
            y = InstanceNormalization (s, scale, bias)
        }""")
    given = {"x": np.ones((2, 2, 3, 4), np.float32), "axes": np.array([0])}
    given |= {name: np.ones(3, np.float32) for name in ("scale", "bias")}
    with core.load_network(model, "HETERO:CPU,REFERENCE") as network:
        found = network.create_infer_request().infer_sync(given)
    np.testing.assert_array_equal(found["y"], np.ones((2, 3, 4)))
