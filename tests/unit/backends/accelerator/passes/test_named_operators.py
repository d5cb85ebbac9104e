"""What exporters spell out gets its name before the rest is put into groups and epilogues."""

from __future__ import annotations

import numpy as np

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator
from unit.backends.accelerator.passes.test_fusion import fused

GELU = """<float root = {1.4142135}, float one = {1}, float half = {0.5}>"""
ERF = "d = Div(s, root) e = Erf(d) g = Add(e, one) h = Mul(s, g) y = Mul(h, half)"


def test_gelu_is_one_step_of_an_epilogue() -> None:
    assert fused(
        f"""g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y) {GELU} {{
            p = MatMul(x, w) s = Add(p, b) {ERF}
        }}"""
    ) == ["y = MatMul(x, w, _, b) [Add(acc,i3) Gelu(s0;0.0)]"]


def test_a_layer_normalization_is_one_node_behind_its_sum() -> None:
    assert fused(
        """g (float[2,3,4] x, float[2,3,4] r) => (float[2,3,4] y) <
            int64[1] last = {-1}, float two = {2}, float eps = {1e-5},
            float[4] gamma = {1, 2, 3, 0.5}, float[4] beta = {-1, 0, 1, 2}> {
            s = Add(x, r)
            m = ReduceMean(s, last) d = Sub(s, m) q = Pow(d, two) v = ReduceMean(q, last)
            e = Add(v, eps) root = Sqrt(e) n = Div(d, root) g = Mul(n, gamma) y = Add(g, beta)
        }"""
    ) == ["s = Add(x, r)", "y = LayerNormalization(s, gamma, beta)"]


def test_a_layer_written_as_a_flat_gemm_takes_its_residual_along() -> None:
    assert fused(
        """g (float[2,3,2] x, float[2,3,3] r) => (float[2,3,3] y) <
            int64[2] flat = {-1, 2}, int64[3] wide = {2, 3, 3},
            float[2,3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3}> {
            f = Reshape(x, flat) p = Gemm(f, w, b) t = Reshape(p, wide) y = Add(t, r)
        }"""
    ) == ["y = MatMul(x, w, _, b, r) [Add(acc,i3) Add(s0,i4)]"]


def test_models_of_old_operator_sets_get_names_that_those_did_not_have(core: Core) -> None:
    chance = np.random.default_rng(0)
    inputs = {"x": chance.standard_normal((3, 8)).astype(np.float32)}
    numbers = {"two": 2, "eps": 1e-5, "root": 2**0.5, "one": 1, "half": 0.5}
    constants = {name: np.float32(number) for name, number in numbers.items()}
    nodes = [
        operator("ReduceMean", "x", outputs=["m"], axes=[-1]),
        operator("Sub", "x", "m", outputs=["c"]),
        operator("Pow", "c", "two", outputs=["q"]),
        operator("ReduceMean", "q", outputs=["v"], axes=[-1]),
        operator("Add", "v", "eps", outputs=["w"]),
        operator("Sqrt", "w", outputs=["r"]),
        operator("Div", "c", "r", outputs=["n"]),
        operator("Div", "n", "root", outputs=["d"]),
        operator("Erf", "d", outputs=["e"]),
        operator("Add", "e", "one", outputs=["g"]),
        operator("Mul", "n", "g", outputs=["h"]),
        operator("Mul", "h", "half"),
    ]
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
    model = model_of(nodes, inputs, constants=constants, opset=13)
    with core.load_network(model, "OPENCL") as network:
        ops = [node.op for node in network.runtime_graph().nodes]
    assert ops == ["LayerNormalization", "Gelu"]
    assert_same_as_reference(core, model, inputs)
