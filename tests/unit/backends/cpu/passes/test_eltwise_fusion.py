import pytest

from aioinfer.backends.cpu.passes.activation_fusion import ActivationFusion
from aioinfer.backends.cpu.passes.eltwise_fusion import EltwiseFusion
from aioinfer.runtime.passes import run_passes
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed

MODEL = """g (float[2,3] x, float[2,3] z, float[3] v, float[2,1] w) => (float[2,3] y)
<float two = {{2}}, float three = {{3}}, float[3] c = {{1, 2, 3}}> {{
    {nodes}
}}"""


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ("a = Relu(x) y = Tanh(a)", "y = cpu::Eltwise(x) [relu tanh]  # Relu_0 Tanh_0"),
        ("a = Add(x, z) y = Relu(a)", "y = cpu::Eltwise(x, z) [add(1) relu]"),
        ("a = Add(v, x) y = Sub(a, w)", "y = cpu::Eltwise(x, v, w) [add(1) sub(2)]"),
        ("a = Exp(x) y = Sub(c, a)", "y = cpu::Eltwise(x, c) [exp linear(-1.0,0.0) add(1)]"),
        ("a = Mul(x, two) y = Add(a, three)", "y = cpu::Eltwise(x) [linear(2.0,3.0)]"),
        ("a = Mul(x, x) y = Sqrt(a)", "y = cpu::Eltwise(x) [square sqrt]"),
        ("a = Pow(x, two) y = Div(three, a)", "y = cpu::Eltwise(x) [square pow(3.0,-1.0)]"),
        ("s = Sigmoid(x) a = Mul(x, s) y = Mul(z, a)", "y = cpu::Eltwise(x, z) [swish mul(1)]"),
    ],
)
def test_a_row_becomes_one_node(nodes: str, line: str) -> None:
    model = parse_typed(MODEL.format(nodes=nodes))
    (found,) = fuse_by(model, ActivationFusion(), EltwiseFusion())
    assert found.startswith(line)


def test_two_rows_that_meet_are_two_nodes() -> None:
    nodes = "a = Exp(x) b = Tanh(a) d = Abs(z) e = Sqrt(d) f = Add(b, e) y = Relu(f)"
    assert fuse_by(parse_typed(MODEL.format(nodes=nodes)), EltwiseFusion()) == [
        "e = cpu::Eltwise(z) [abs sqrt]  # Abs_0 Sqrt_0",
        "y = cpu::Eltwise(x, e) [exp tanh add(1) relu]  # Exp_0 Tanh_0 Add_0 Relu_0",
    ]


def test_a_long_row_is_divided() -> None:
    curves = " ".join(f"v{index + 1} = Tanh(v{index})" for index in range(19))
    model = parse_typed(MODEL.format(nodes=f"v0 = Tanh(x) {curves} y = Tanh(v19)"))
    assert [line.count("tanh") for line in fuse_by(model, EltwiseFusion())] == [8, 8, 5]


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Relu(x)",
        "y = Add(x, z)",
        "a = Erf(x) y = Floor(a)",
        "a = Relu(v) y = Add(x, a)",
        "a = Relu(w) y = Add(v, a)",
        "a = Relu(x) b = Sign(a) y = Relu(b)",
    ],
)
def test_what_is_no_row_of_one_shape_stays(nodes: str) -> None:
    model = parse_typed(MODEL.format(nodes=nodes))
    assert run_passes(model, [EltwiseFusion()]).patch_count == 0


@pytest.mark.parametrize("kind", ["double", "float16", "int32"])
def test_other_types_stay(kind: str) -> None:
    model = parse_typed(f"g ({kind}[2] x) => ({kind}[2] y) {{ a = Abs(x) y = Abs(a) }}")
    assert run_passes(model, [EltwiseFusion()]).patch_count == 0


def test_a_result_that_a_graph_returns_ends_the_row() -> None:
    text = MODEL.format(nodes="a = Relu(x) b = Tanh(a) y = Abs(b)")
    model = parse_typed(text.replace(" y)", " y, float[2,3] b)"))
    assert fuse_by(model, EltwiseFusion()) == [
        "b = cpu::Eltwise(x) [relu tanh]  # Relu_0 Tanh_0",
        "y = Abs(b)  # Abs_0",
    ]


def test_unknown_lengths_do_not_hinder_what_has_no_operands() -> None:
    text = MODEL.format(nodes="a = Relu(x) b = Mul(a, two) e = Exp(b) y = Add(e, z)")
    assert fuse_by(parse_typed(text.replace("[2,3]", "[n,3]")), EltwiseFusion()) == [
        "e = cpu::Eltwise(x) [relu linear(2.0,0.0) exp]  # Relu_0 Mul_0 Exp_0",
        "y = Add(e, z)  # Add_0",
    ]
