"""Operators of which onnxruntime has no newer kernel run beside others that have changed since."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import aioinfer
from onnx_text import parse_proto

X = np.linspace(-1, 1, 72, dtype=np.float32).reshape(1, 2, 6, 6)
BOXES = "<float[1,4] boxes = {0, 0, 4, 4}, float[1,5] rois = {0, 0, 0, 4, 4}, int64[1] b = {0}>"
OLD = [
    "o = RoiAlign <output_height = 2, output_width = 2> (x, boxes, b)",
    "o = GlobalLpPool (x)",
    "o = MaxRoiPool <pooled_shape = [2, 2]> (x, rois)",
    "m = ReduceMax <keepdims = 0> (x, place) o = Multinomial <sample_size = 3> (m)",
    "o = RandomNormal <shape = [2, 3]> ()",
    "o = RandomUniform <shape = [2, 3]> ()",
    "o = RandomNormalLike (x)",
    "o = RandomUniformLike (x)",
]
CHANGED = {
    "n = Cast <to = 11> (x)": 18,
    "n = Cast <to = 11, saturate = 1> (x)": 21,
    "t = Constant <value = double {0.0}> () n = CastLike (x, t)": 19,
    "s = Constant <value = int64[1] {-1}> () n = Reshape <allowzero = 0> (x, s)": 19,
    "s = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> () n = Resize (x, , s)": 18,
    "w = Constant <value = float[6] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> () "
    "n = LayerNormalization (x, w)": 18,
    "s = Constant <value = float {0.1}> () n = QuantizeLinear (x, s)": 21,
    "s = Constant <value = float {0.1}> () q = QuantizeLinear <block_size = 0> (x, s) "
    "n = DequantizeLinear <block_size = 0> (q, s)": 21,
    "s = Constant <value = float[2] {1.0, 2.0}> () "
    "n = GroupNormalization <num_groups = 2> (x, s, s)": 18,
    "n = AveragePool <kernel_shape = [2, 2]> (x)": 18,
    "n = LpPool <kernel_shape = [2, 2]> (x)": 18,
    "n = Gelu (x)": 20,
    "p = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> () n = Pad (x, p)": 18,
    "n, o2 = Split <axis = 1, num_outputs = 2> (x)": 18,
    "n = Transpose <perm = [0, 2, 3, 1]> (x)": 18,
    "n = Softmax (x) k = IsNaN (x) h = IsInf (x)": 18,
    "n = Shape <start = 1> (x)": 18,
}


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("old", OLD)
def test_an_old_kernel_is_found_beside(core: aioinfer.Core, old: str, changed: str) -> None:
    proto = parse_proto(
        f"""g (float[1,2,6,6] x) => (float o, float n) {BOXES}
        {{ place = Constant <value = int64[2] {{2, 3}}> () {changed} {old} }}""",
        CHANGED[changed],
    )
    for output in proto.graph.output:
        output.ClearField("type")
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(["n"], {"x": X})[0]
    with core.load_network(proto, "ONNXRUNTIME") as network:
        found = network.create_infer_request().infer_sync({"x": X})
    np.testing.assert_allclose(found["n"], expected, 1e-5, 1e-6)


def test_a_type_that_only_a_newer_kernel_takes_keeps_its_version(core: aioinfer.Core) -> None:
    proto = parse_proto("g (bfloat16[3] x) => (bool[3] y) { y = IsNaN (x) }", 20)
    x = np.array([1, np.nan, np.inf], ml_dtypes.bfloat16)
    with core.load_network(proto, "ONNXRUNTIME") as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
    assert found.tolist() == [False, True, False]
