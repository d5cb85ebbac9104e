"""Models with QuantizeLinear and DequantizeLinear give what onnxruntime alone gives."""

from typing import Any

import numpy as np
import onnxruntime
import pytest

import aioinfer
from aioinfer.errors import TensorError
from onnx_text import parse_proto

DEVICES = ["ONNXRUNTIME", "HETERO:ONNXRUNTIME,CPU", "HETERO:CPU,ONNXRUNTIME"]
TAIL = "cq = QuantizeLinear (c, so, z) y = DequantizeLinear (cq, so, z)"
HEAD = "xq = QuantizeLinear (x, si, z) xd = DequantizeLinear (xq, si, z)"
SCALES = "float si = {0.01}, float so = {0.02}, int8 z = {0}"
CONV = parse_proto(f"""g (float[1,1,1,1] x) => (float[1,2,1,1] y)
    <{SCALES}, int8[2,1,1,1] wq = {{100, 100}}, float[2] ws = {{1, 0.001}}> {{
    {HEAD} [w] w = DequantizeLinear <axis = 0> (wq, ws) [conv] c = Conv (xd, w) {TAIL} }}""")
FLOAT_WEIGHTS = parse_proto(f"""g (float[1,1,1,1] x) => (float[1,2,1,1] y)
    <{SCALES}, float[2,1,1,1] w0 = {{100, 0.1}}, float[2] ws = {{1, 0.001}}> {{
    {HEAD} [wq] wq = QuantizeLinear <axis = 0> (w0, ws) [w] w = DequantizeLinear <axis = 0> (wq, ws)
    [conv] c = Conv (xd, w) {TAIL} }}""")
MATMUL = parse_proto(f"""g (float[1,1] x) => (float[1,2] y)
    <{SCALES}, int8[1,2] wq = {{100, 100}}, float[2] ws = {{1, 0.001}}> {{
    {HEAD} [w] w = DequantizeLinear <axis = 1> (wq, ws) [matmul] c = MatMul (xd, w) {TAIL} }}""")
SHARED = parse_proto(f"""g (float[1,1] x) => (float[1,2] y, float[1,2] other)
    <{SCALES}, int8[1,2] wq = {{100, 100}}, float[2] ws = {{1, 0.001}}> {{
    {HEAD} [w] w = DequantizeLinear <axis = 1> (wq, ws) [matmul] c = MatMul (xd, w) {TAIL}
    [second] other = MatMul (x, w) }}""")
IN_A_BODY = parse_proto(f"""g (bool b, float[1,1] x) => (float[1,2] y)
    <{SCALES}, int8[1,2] wq = {{100, 100}}, float[2] ws = {{1, 0.001}}> {{
    [w] w = DequantizeLinear <axis = 1> (wq, ws)
    y = If (b) <then_branch = t () => (float[1,2] yt) {{ {HEAD} c = MatMul (xd, w)
        cq = QuantizeLinear (c, so, z) yt = DequantizeLinear (cq, so, z) }},
      else_branch = e () => (float[1,2] ye) {{ {HEAD}
        [inner] v = DequantizeLinear <axis = 1> (wq, ws) c = MatMul (xd, v)
        cq = QuantizeLinear (c, so, z) ye = DequantizeLinear (cq, so, z) }}> }}""")


def plainly(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def inputs_of(model: Any) -> dict[str, np.ndarray]:
    shapes = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for item in model.graph.input
    }
    return {name: np.ones(shape, "?" if name == "b" else "f") for name, shape in shapes.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", [CONV, FLOAT_WEIGHTS, MATMUL, SHARED, IN_A_BODY])
def test_weights_quantised_by_channel_keep_their_scales(
    core: aioinfer.Core, model: Any, device: str
) -> None:
    for flag in (False, True):
        inputs = inputs_of(model)
        if "b" in inputs:
            inputs["b"] = np.array(flag)
        with core.load_network(model, device) as network:
            got = network.create_infer_request().infer_sync(inputs)
        for name, expected in plainly(model, inputs).items():
            np.testing.assert_allclose(got[name], expected, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(got["y"].ravel(), [2.54, 0.1], rtol=1e-6)


@pytest.mark.parametrize("weights", ["CPU", "ONNXRUNTIME"])
def test_a_cut_between_weights_and_their_user_changes_no_number(
    core: aioinfer.Core, weights: str
) -> None:
    for conv in ("CPU", "ONNXRUNTIME"):
        config = {"AFFINITY": {"w": weights, "conv": conv}}
        with core.load_network(CONV, "HETERO:ONNXRUNTIME,CPU", config) as network:
            got = network.create_infer_request().infer_sync(inputs_of(CONV))
        np.testing.assert_allclose(got["y"].ravel(), [2.54, 0.1], rtol=1e-6)


def test_weights_that_two_devices_use_are_there_for_each(core: aioinfer.Core) -> None:
    config = {"AFFINITY": {"second": "CPU"}}
    with core.load_network(SHARED, "HETERO:ONNXRUNTIME,CPU", config) as network:
        got = network.create_infer_request().infer_sync(inputs_of(SHARED))
        kinds = [node.op_type for node in network.runtime_graph().nodes]
    np.testing.assert_allclose(got["y"].ravel(), [2.54, 0.1], rtol=1e-6)
    np.testing.assert_allclose(got["other"].ravel(), [100, 0.1], rtol=1e-6)
    assert kinds.count("DequantizeLinear") == 4  # of x, of the weights for each device, of y


OPEN_RANK = parse_proto("""g (uint8 x) => (float y)
    <float s = {0.1}, uint8 z = {3}, int8[4,3,1,1] wq = {1,2,3,4,5,6,7,8,9,10,11,12}, int8 zw = {0}>
    {
    d = DequantizeLinear (x, s, z) w = DequantizeLinear (wq, s, zw) [conv] c = Conv (d, w)
    q = QuantizeLinear (c, s, z) y = DequantizeLinear (q, s, z) }""")
OPEN_RANK.graph.input[0].type.tensor_type.ClearField("shape")
OPEN_RANK.graph.output[0].type.tensor_type.ClearField("shape")


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (1, 3, 2)])
def test_inputs_of_another_rank_than_an_operator_takes_are_refused(
    core: aioinfer.Core, shape: tuple[int, ...]
) -> None:
    with core.load_network(OPEN_RANK, "ONNXRUNTIME") as network:
        request = network.create_infer_request()
        for _ in range(2):
            with pytest.raises(TensorError, match="'conv'"):
                request.infer_sync({"x": np.ones(shape, np.uint8)})
            right = {"x": np.ones((1, 3, 2, 2), np.uint8)}
            assert request.infer_sync(right)["y"].shape == (1, 4, 2, 2)
