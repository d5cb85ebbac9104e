import pytest

from aioinfer.backends.cpu.passes.activation_fusion import ActivationFusion
from aioinfer.runtime.passes import run_passes
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed

MODEL = """g (float[2,3] x) => (float[2,3] y)
<float half = {{0.5}}, float one = {{1}}, float two = {{2}}, float three = {{3}}, float six = {{6}},
 float zero = {{0}}, float sixth = {{0.16666667}}, float root = {{1.4142135}},
 float inverse = {{0.70710677}}, float slope = {{0.7978846}}, float bend = {{0.044715}},
 float quick = {{1.702}}, float[1,1,1] high = {{1.702}}> {{
    {nodes}
}}"""

GELU = "d = Div(x, root) e = Erf(d) g = Add(e, one) "
CUBE = "p = Pow(x, three) q = Mul(p, bend) r = Add(x, q) t = Mul(r, slope) "
TANH = "e = Tanh(t) g = Add(one, e) "

SPELLED = {
    "gelu, half of x first": (GELU + "h = Mul(x, half) y = Mul(h, g)", "gelu_erf"),
    "gelu, half last": (GELU + "h = Mul(x, g) y = Mul(h, half)", "gelu_erf"),
    "gelu, half of the curve": (GELU + "h = Mul(half, g) y = Mul(h, x)", "gelu_erf"),
    "gelu, divided by two": (GELU + "h = Mul(g, x) y = Div(h, two)", "gelu_erf"),
    "gelu, one first": (
        "d = Mul(inverse, x) e = Erf(d) g = Add(one, e) h = Mul(half, x) y = Mul(g, h)",
        "gelu_erf",
    ),
    "gelu of tanh": (CUBE + TANH + "h = Mul(x, half) y = Mul(h, g)", "gelu_tanh"),
    "gelu of tanh, without Pow": (
        "s = Mul(x, x) p = Mul(s, x) q = Mul(bend, p) r = Add(q, x) t = Mul(slope, r) "
        + TANH
        + "h = Mul(x, g) y = Mul(h, half)",
        "gelu_tanh",
    ),
    "gelu of tanh, x taken out": (
        "s = Mul(x, x) b = Mul(s, bend) r = Add(one, b) v = Mul(x, slope) t = Mul(v, r) "
        + TANH
        + "h = Mul(x, half) y = Mul(h, g)",
        "gelu_tanh",
    ),
    "swish": ("s = Sigmoid(x) y = Mul(x, s)", "swish"),
    "swish, other order": ("s = Sigmoid(x) y = Mul(s, x)", "swish"),
    "swish with a factor": ("a = Mul(x, two) s = Sigmoid(a) y = Mul(x, s)", "swish(2.0,0.0)"),
    "hardswish of HardSigmoid": (
        "s = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(x, s)",
        "hardswish",
    ),
    "hardswish, divided last": (
        "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        "hardswish",
    ),
    "hardswish, divided first": (
        "a = Add(three, x) c = Clip(a, zero, six) m = Div(c, six) y = Mul(m, x)",
        "hardswish",
    ),
    "hardswish, a sixth": (
        "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Mul(m, sixth)",
        "hardswish",
    ),
    "hardsigmoid": (
        "a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)",
        "hardsigmoid(0.16666666666666666,0.5)",
    ),
    "mish": ("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", "mish"),
    "mish of exp and log": (
        "e = Exp(x) a = Add(one, e) s = Log(a) t = Tanh(s) y = Mul(t, x)",
        "mish",
    ),
}


@pytest.mark.parametrize("name", SPELLED)
def test_an_activation_that_is_spelled_out_becomes_one_node(name: str) -> None:
    nodes, activation = SPELLED[name]
    model = parse_typed(MODEL.format(nodes=nodes))
    names = {node.name for node in model.graph.nodes}
    run_passes(model, [ActivationFusion()])
    (node,) = model.graph.nodes
    assert node.op == "aioinfer.cpu::Eltwise"
    assert node.attributes == {"post_ops": [activation]}
    assert [value.name for value in (*node.inputs, *node.outputs)] == ["x", "y"]
    assert set(node.fused_from) == names


def test_quick_gelu_is_a_swish() -> None:
    model = parse_typed(MODEL.format(nodes="a = Mul(quick, x) s = Sigmoid(a) y = Mul(x, s)"))
    (line,) = fuse_by(model, ActivationFusion())
    assert line.startswith("y = cpu::Eltwise(x) [swish(1.70")


@pytest.mark.parametrize(
    "nodes",
    [
        # numbers that are not near
        "d = Div(x, two) e = Erf(d) g = Add(e, one) h = Mul(x, half) y = Mul(h, g)",
        GELU + "h = Mul(x, three) y = Mul(h, g)",
        CUBE.replace("bend", "half") + TANH + "h = Mul(x, half) y = Mul(h, g)",
        CUBE.replace("slope", "root") + TANH + "h = Mul(x, half) y = Mul(h, g)",
        CUBE.replace("three", "two") + TANH + "h = Mul(x, half) y = Mul(h, g)",
        "a = Add(x, two) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        "a = Add(x, three) c = Clip(a, zero, two) m = Mul(x, c) y = Div(m, six)",
        "e = Exp(x) a = Add(two, e) s = Log(a) t = Tanh(s) y = Mul(t, x)",
        # the two factors are of different values
        "z = Neg(x) s = Sigmoid(z) y = Mul(s, three)",
        "z = Exp(x) s = Sigmoid(z) y = Mul(x, s)",
        "z = Exp(x) s = Softplus(z) t = Tanh(s) y = Mul(t, x)",
        "z = Exp(x) d = Div(z, root) e = Erf(d) g = Add(e, one) h = Mul(x, half) y = Mul(h, g)",
        # other curves
        "s = Tanh(x) y = Mul(x, s)",
        "s = Sigmoid(x) t = Mul(x, two) y = Add(t, s)",
    ],
)
def test_what_only_looks_like_one_stays(nodes: str) -> None:
    model = parse_typed(MODEL.format(nodes=nodes))
    assert run_passes(model, [ActivationFusion()]).patch_count == 0


@pytest.mark.parametrize("outputs", ["float[2,3] y, float[2,3] g", "float[2,3] y, float[2,3] z"])
def test_a_part_that_others_need_keeps_it_apart(outputs: str) -> None:
    nodes = GELU + "h = Mul(x, half) y = Mul(h, g) z = Relu(e)"
    text = MODEL.format(nodes=nodes).replace("float[2,3] y", outputs)
    if "z" not in outputs:
        text = text.replace("z = Relu(e)", "")
    assert run_passes(parse_typed(text), [ActivationFusion()]).patch_count == 0


def test_a_constant_with_more_axes_changes_the_shape_and_stays() -> None:
    nodes = "a = Mul(x, high) s = Sigmoid(a) y = Mul(x, s)"
    text = MODEL.format(nodes=nodes).replace("float[2,3] y", "float[1,2,3] y")
    assert run_passes(parse_typed(text), [ActivationFusion()]).patch_count == 0


def test_other_types_stay() -> None:
    model = parse_typed("g (double[2,3] x) => (double[2,3] y) { s = Sigmoid(x) y = Mul(x, s) }")
    assert run_passes(model, [ActivationFusion()]).patch_count == 0


def test_a_gated_unit_keeps_its_second_factor() -> None:
    model = parse_typed(
        """g (float[2,3] x, float[2,3] up) => (float[2,3] y) {
            s = Sigmoid(x) a = Mul(x, s) y = Mul(a, up)
        }"""
    )
    assert fuse_by(model, ActivationFusion()) == [
        "a = cpu::Eltwise(x) [swish]  # Mul_0 Sigmoid_0",
        "y = Mul(a, up)  # Mul_1",
    ]


def test_bodies_of_control_flow_are_left_to_the_device_that_runs_them() -> None:
    model = parse_typed(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] p) { s = Sigmoid(x) p = Mul(x, s) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
        }"""
    )
    assert run_passes(model, [ActivationFusion()]).patch_count == 0


def test_long_rows_of_products_are_not_followed_to_their_end() -> None:
    rows = " ".join(f"v{index + 1} = Mul(v{index}, two)" for index in range(1500))
    model = parse_typed(MODEL.format(nodes=f"v0 = Relu(x) {rows} y = Relu(v1500)"))
    assert run_passes(model, [ActivationFusion()]).patch_count == 0
