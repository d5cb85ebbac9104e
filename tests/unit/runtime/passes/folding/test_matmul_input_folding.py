"""What prepares the input of Gemm or MatMul goes into its weights."""

import numpy as np
import pytest

from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.folding.batch_normalization_folding import BatchNormalizationFolding
from aioinfer.runtime.passes.folding.scale_shift_folding import ScaleShiftFolding
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed, run_fused

MODEL = """g (float[n,2] x, float[b,n,2] x3, float[n,1] one) => (float[n,3] y)
<float[2,3] k = {{1, 2, 3, 4, 5, 6}}, float[3,2] t = {{1, 4, 2, 5, 3, 6}}, float[3] b = {{1, 1, 1}},
 float[2] c = {{10, 20}}, float[1,2] d = {{1, 2}}, float[2,1] rows = {{1, 2}}, float s = {{4}},
 float[2] zero = {{0, 0}}, float[2] far = {{1, 2020}}, float[2] tiny = {{1e-37, 1e-37}}> {{
    {nodes}
}}"""


@pytest.mark.parametrize(
    ("nodes", "weights", "bias"),
    [
        ("v = Mul(x, c) y = Gemm(v, k)", [[10, 20, 30], [80, 100, 120]], None),
        ("v = Mul(x, c) y = Gemm<transB=1>(v, t)", [[10, 80], [20, 100], [30, 120]], None),
        ("v = Mul(s, x) y = Gemm<beta=3.0>(v, k, b)", [[4, 8, 12], [16, 20, 24]], [1, 1, 1]),
        ("v = Add(x, d) y = Gemm<alpha=0.5,beta=3.0>(v, k, b)", None, [7.5, 9, 10.5]),
        ("v = Add(x, s) y = Gemm<transB=1>(v, t)", None, [20, 28, 36]),
        ("v = Sub(d, x) y = Gemm(v, k)", [[-1, -2, -3], [-4, -5, -6]], [9, 12, 15]),
        (
            "u = Sub(x, c) v = Div(u, s) y = Gemm(v, k, b)",
            [[0.25, 0.5, 0.75], [1, 1.25, 1.5]],
            [-21.5, -29, -36.5],
        ),
        ("v = Mul(x, c) y = MatMul(v, k)", [[10, 20, 30], [80, 100, 120]], None),
        ("v = Div(x3, d) y = MatMul(v, k)", [[1, 2, 3], [2, 2.5, 3]], None),
    ],
)
def test_numbers_for_what_is_summed_go_into_a_matmul(nodes, weights, bias) -> None:
    model = parse_typed(MODEL.format(nodes=nodes).replace("float[n,3] y", "float y"))
    fuse_by(model, ScaleShiftFolding())
    (matmul,) = model.graph.nodes
    assert matmul.inputs[0] in model.inputs
    found = [value.constant for value in matmul.inputs[1:]]
    if weights is not None:
        assert found[0].tolist() == weights
    assert [array.tolist() for array in found[1:]] == ([] if bias is None else [bias])


@pytest.mark.parametrize(
    "nodes",
    [
        "v = Add(x, c) y = MatMul(v, k)",  # a MatMul has no bias
        "v = Mul(x, c) y = Gemm(v, k) z = Relu(v)",
        "v = Mul(x, rows) y = MatMul(v, k)",
        "v = Mul(one, c) y = MatMul(v, k)",  # a channel becomes two
        "w = Transpose(x) v = Mul(w, rows) y = Gemm<transA=1>(v, k)",
        "w = Relu(x) v = Mul(w, c) y = MatMul(v, k)",
        "v = Mul(k, s) y = MatMul(x, k)",
        "v = Div(x, zero) y = MatMul(v, k)",
        "v = Sub(x, far) y = Gemm(v, k)",  # years: what they differ in would be lost in the sum
        "v = Mul(x, tiny) y = MatMul(v, k)",  # the weights would lose bits
    ],
)
def test_what_stays_before_a_matmul(nodes) -> None:
    text = MODEL.format(nodes=nodes).replace("float[n,3] y", "float y")
    text = text if "z =" not in nodes else text.replace("float y)", "float y, float z)")
    assert run_passes(parse_typed(text), [ScaleShiftFolding()]).patch_count == 0


NORMALIZE = "v = BatchNormalization<epsilon=0.0>(x, c, c, d1, four)"


@pytest.mark.parametrize(("matmul", "count"), [("Gemm(v, k, b)", 1), ("MatMul(v, k)", 2)])
def test_a_batch_normalization_goes_into_a_gemm(matmul, count) -> None:
    more = "float[2] d1 = {1, 2}, float[2] four = {4, 4}, float s ="
    text = MODEL.format(nodes=f"{NORMALIZE} y = {matmul}").replace("float s =", more)
    model = parse_typed(text)
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    given = {"x": x, "x3": x[None], "one": x[:, :1]}
    (before,) = run_fused(model, given)
    fuse_by(model, BatchNormalizationFolding())
    assert len(list(model.graph.nodes)) == count
    (found,) = run_fused(model, given)
    np.testing.assert_allclose(found, before, rtol=1e-5, atol=1e-3)
