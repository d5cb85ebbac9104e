import pytest

from aioinfer.backends.cpu.passes.activation_fusion import ActivationFusion
from aioinfer.backends.cpu.passes.epilogue_fusion import EpilogueFusion
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed
from unit.runtime.passes.small_models import value_of

CONV = """g (float[2,2,4,4] x, float[2,2,4,4] r) => (float[2,2,4,4] y)
<float[2,2,1,1] w = {{1, 2, 3, 4}}, float[2] b = {{1, 2}}, float[2,1,1] c = {{1, 2}},
 float[4] along = {{1, 2, 3, 4}}, float zero = {{0}}, float six = {{6}}, float two = {{2}},
 float[1,1,1,1,1] deep = {{2}}> {{
    {nodes}
}}"""
MATMUL = """g (float[2,5,3] x, float[2,5,2] r) => (float[2,5,2] y)
<float[3,2] w = {{1, 2, 3, 4, 5, 6}}, float[2] b = {{1, 2}}, float[1,1,2] c = {{1, 2}},
 float two = {{2}}, float[5,1] rows = {{1, 2, 3, 4, 5}}> {{
    {nodes}
}}"""


def fused(text: str) -> list[str]:
    return fuse_by(parse_typed(text), ActivationFusion(), EpilogueFusion(ConstantCache()))


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ("u = Conv(x, w, b) y = Relu(u)", "y = cpu::Conv(x, w, b) [relu]"),
        ("u = Conv(x, w) y = Relu(u)", "y = cpu::Conv(x, w) [relu]"),
        (
            "u = ConvTranspose(x, w) y = Clip(u, zero, six)",
            "cpu::ConvTranspose(x, w) [clip(0.0,6.0)]",
        ),
        ("u = Conv(x, w) y = LeakyRelu<alpha=0.5>(u)", "[relu(0.5,0.0)]"),
        ("u = Conv(x, w) s = Sigmoid(u) y = Mul(u, s)", "y = cpu::Conv(x, w) [swish]"),
        ("u = Conv(x, w) v = Sigmoid(u) y = Tanh(v)", "[sigmoid tanh]"),
        ("u = Conv(x, w) v = Mul(u, two) y = Add(v, six)", "[linear(2.0,6.0)]"),
        ("u = Conv(x, w) y = Sub(two, u)", "[linear(-1.0,2.0)]"),
        ("u = Conv(x, w) y = Add(u, c)", "y = cpu::Conv(x, w, c_1)  #"),
        ("u = Conv(x, w, b) y = Add(u, c)", "y = cpu::Conv(x, w, b, c) [add(3)]"),
        ("u = Conv(x, w) v = Relu(u) y = Mul(c, v)", "y = cpu::Conv(x, w, _, c) [relu mul(3)]"),
        ("u = Conv(x, w) y = Mul(u, r)", "y = cpu::Conv(x, w, _, r) [mul(3)]"),
        ("u = Conv(x, w) y = Sub(r, u)", "y = cpu::Conv(x, w, _, r) [linear(-1.0,0.0) add(3)]"),
        ("u = Conv(x, w) y = Div(u, r)", "[div(3)]"),
        ("u = Conv(x, w) v = Max(u, r) y = Min(v, c)", "cpu::Conv(x, w, _, r, c) [max(3) min(4)]"),
    ],
)
def test_what_follows_a_conv_is_appended_to_it(nodes: str, line: str) -> None:
    (found,) = fused(CONV.format(nodes=nodes))
    assert line in found


@pytest.mark.parametrize(
    ("form", "nodes", "kept"),
    [
        (MATMUL, "u = MatMul(x, w) v = Add(u, b) y = Tanh(v)", ["MatMul(x, w, b)", "Tanh(v)"]),
        (MATMUL, "u = MatMul(x, w) y = Sigmoid(u)", ["MatMul(x, w) [sigmoid]"]),
        (CONV, "u = Conv(x, w) y = Tanh(u)", ["Conv(x, w) [tanh]"]),
    ],
)
def test_what_is_slow_behind_a_matmul_is_left_to_others(
    form: str, nodes: str, kept: list[str]
) -> None:
    fusion = EpilogueFusion(ConstantCache(), slow={"tanh"})
    found = fuse_by(parse_typed(form.format(nodes=nodes)), fusion)
    assert len(found) == len(kept)
    assert all(line in text for line, text in zip(kept, found, strict=True))


@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        ("u = Conv(x, w, b) y = Relu(u)", ["Conv(x, w, b)", "Relu(u)"]),
        ("u = Conv(x, w) v = Sigmoid(u) y = Max(v, c)", ["Conv(x, w) [sigmoid]", "Max(v, c)"]),
        ("u = Conv(x, w) y = LeakyRelu<alpha=0.5>(u)", ["Conv(x, w) [relu(0.5,0.0)]"]),
    ],
)
def test_steps_that_lose_nan_are_left_out_if_it_is_to_be_kept(nodes, kept) -> None:
    fusion = EpilogueFusion(ConstantCache(), keep_nan=True)
    found = fuse_by(parse_typed(CONV.format(nodes=nodes)), fusion)
    assert len(found) == len(kept)
    for line, text in zip(found, kept, strict=True):
        assert text in line


def test_a_residual_that_nobody_needs_any_more_is_summed_up_in_place() -> None:
    nodes = "q = Exp(r) t = Conv(q, w) u = Conv(t, w, b) s = Add(q, u) y = Relu(s)"
    assert fused(CONV.format(nodes=nodes)) == [
        "q = Exp(r)  # Exp_0",
        "t = Conv(q, w)  # Conv_0",
        "y = cpu::Conv(t, w, b, q) [sum(3) relu]  # Conv_1 Add_0 Relu_0",
    ]


@pytest.mark.parametrize(
    "nodes",
    [
        "u = Conv(x, w, b) y = Add(u, r)",  # an input of the graph
        "q = Exp(r) u = Conv(x, w, b) v = Add(u, q) y = Sub(v, q)",  # needed later
        "q = Exp(r) u = Conv(q, w, b) y = Add(u, q)",  # read by the node itself
        "q = Exp(r) u = Conv(x, w, b) v = Tanh(u) y = Add(v, q)",  # not the first step
    ],
)
def test_other_residuals_are_added_from_where_they_are(nodes: str) -> None:
    found = fused(CONV.format(nodes=nodes))[-1]
    assert "add(3)" in found
    assert "sum" not in found


def test_an_output_of_the_graph_is_not_written_over() -> None:
    text = CONV.format(nodes="q = Exp(r) u = Conv(x, w) y = Add(u, q)")
    found = fused(text.replace(" y)", " y, float[2,2,4,4] q)"))
    assert "[add(3)]" in found[-1]


def test_of_two_branches_the_later_takes_the_sum() -> None:
    nodes = "u = Conv(x, w, b) p = Relu(u) v = Conv(x, w) s = Add(p, v) y = Relu(s)"
    assert fused(CONV.format(nodes=nodes)) == [
        "p = cpu::Conv(x, w, b) [relu]  # Conv_0 Relu_0",
        "y = cpu::Conv(x, w, _, p) [sum(3) relu]  # Conv_1 Add_0 Relu_1",
    ]


def test_a_node_moves_behind_the_maker_of_its_operand() -> None:
    nodes = "u = Conv(x, w) e = Exp(r) q = Neg(e) s = Add(u, q) y = Relu(s)"
    assert fused(CONV.format(nodes=nodes)) == [
        "e = Exp(r)  # Exp_0",
        "q = Neg(e)  # Neg_0",
        "y = cpu::Conv(x, w, _, q) [sum(3) relu]  # Conv_0 Add_0 Relu_0",
    ]


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ("u = MatMul(x, w) y = Add(u, b)", "y = cpu::MatMul(x, w, b)  # MatMul_0 Add_0"),
        ("u = MatMul(x, w) y = Add(c, u)", "y = cpu::MatMul(x, w, c_1)  # MatMul_0 Add_0"),
        ("u = MatMul(x, w) v = Add(u, b) y = Add(v, r)", "(x, w, b, r) [add(3)]"),
        ("u = MatMul(x, w) v = Add(u, b) y = Gelu(v)", "cpu::MatMul(x, w, b) [gelu_erf]"),
        ("u = MatMul(x, w) v = Mul(u, two) y = Add(v, b)", "(x, w, _, b) [linear(2.0,0.0) add(3)]"),
        ("u = MatMul(x, w) v = Add(u, b) y = Mul(v, b)", "cpu::MatMul(x, w, b, b) [mul(3)]"),
    ],
)
def test_what_follows_a_matmul_is_appended_to_it(nodes: str, line: str) -> None:
    (found,) = fused(MATMUL.format(nodes=nodes))
    assert line in found


def test_a_bias_that_loses_axes_is_one_array_for_all_plans() -> None:
    text = MATMUL.format(nodes="u = MatMul(x, w) y = Add(u, c)")
    first = parse_typed(text)
    second = first.copy()
    cache = ConstantCache()
    for model in (first, second):
        run_passes(model, [EpilogueFusion(cache)])
    arrays = [value_of(model, "c_1").constant for model in (first, second)]
    assert arrays[0].shape == (2,)
    assert arrays[0] is arrays[1]


def test_a_gemm_takes_a_bias_and_an_activation() -> None:
    text = """g (float[4,3] x) => (float[4,2] y)
    <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> {
        u = Gemm<alpha=0.5>(x, w) v = Add(u, b) y = Relu(v)
    }"""
    model = parse_typed(text)
    run_passes(model, [EpilogueFusion(ConstantCache())])
    (node,) = model.graph.nodes
    assert node.attributes == {"alpha": 0.5, "post_ops": ["relu"]}
    assert [value.name for value in node.inputs] == ["x", "w", "b"]


def test_a_fused_node_takes_more() -> None:
    model = parse_typed(CONV.format(nodes="u = Conv(x, w) v = Mul(u, r) y = Sign(v)"))
    fuse_by(model, EpilogueFusion(ConstantCache()))
    model.node("Sign_0").op_type = "Relu"
    assert fuse_by(model, EpilogueFusion(ConstantCache())) == [
        "y = cpu::Conv(x, w, _, r) [mul(3) relu]  # Conv_0 Mul_0 Sign_0"
    ]


def test_lists_of_steps_have_an_end() -> None:
    curves = " ".join(f"v{index + 1} = Tanh(v{index})" for index in range(9))
    first, second = fused(CONV.format(nodes=f"v0 = Conv(x, w) {curves} y = Neg(v9)"))[:2]
    assert first.count("tanh") == 8
    assert second.startswith("v9 = Tanh(v8)")


@pytest.mark.parametrize(
    "nodes",
    [
        "u = Conv(x, w) y = Erf(u)",
        "u = Conv(x, w) y = Mul(u, along)",
        "u = Conv(x, w) y = Add(u, u)",
        "u = Conv(x, w) y = Div(r, u)",
        "u = Conv(x, w) y = Pow(u, r)",
        "u = Conv(x, w) y = Clip(u, s, six)",
        "u = Conv(x, w) v = Relu(u) y = Add(v, u)",
    ],
)
def test_other_nodes_stay(nodes: str) -> None:
    text = CONV.format(nodes=nodes).replace("4,4] r)", "4,4] r, float s)")
    assert all("cpu::" not in line for line in fused(text))


@pytest.mark.parametrize(
    "nodes", ["u = MatMul(x, w) y = Mul(u, rows)", "u = MatMul(x, w) y = Add(rows, u)"]
)
def test_a_matmul_broadcasts_along_its_last_axis_only(nodes: str) -> None:
    assert all("cpu::" not in line for line in fused(MATMUL.format(nodes=nodes)))


def test_an_operand_that_widens_the_result_stays() -> None:
    text = CONV.format(nodes="u = Conv(x, w) y = Mul(u, deep)")
    text = text.replace("=> (float[2,2,4,4] y)", "=> (float[1,2,2,4,4] y)")
    assert all("cpu::" not in line for line in fused(text))


def test_a_result_that_a_graph_returns_is_not_lost() -> None:
    text = CONV.format(nodes="u = Conv(x, w) v = Relu(u) y = Tanh(v)")
    assert fused(text.replace(" y)", " y, float[2,2,4,4] v)")) == [
        "v = cpu::Conv(x, w) [relu]  # Conv_0 Relu_0",
        "y = Tanh(v)  # Tanh_0",
    ]


def test_without_known_lengths_only_what_needs_none_is_appended() -> None:
    text = CONV.format(nodes="u = Conv(x, w) v = Relu(u) s = Mul(v, two) t = Add(s, r) y = Tanh(t)")
    assert fused(text.replace("float[2,2,4,4]", "float[n,2,h,w]"))[0] == (
        "s = cpu::Conv(x, w) [relu linear(2.0,0.0)]  # Conv_0 Relu_0 Mul_0"
    )


def test_other_types_stay() -> None:
    text = CONV.format(nodes="u = Conv(x, w) y = Relu(u)").replace("float", "double")
    assert fused(text) == ["u = Conv(x, w)  # Conv_0", "y = Relu(u)  # Relu_0"]


def test_nodes_for_different_devices_stay_apart() -> None:
    model = parse_typed(CONV.format(nodes="u = Conv(x, w) y = Relu(u)"))
    model.node("Relu_0").affinity = "REFERENCE"
    assert run_passes(model, [EpilogueFusion(ConstantCache())]).patch_count == 0
