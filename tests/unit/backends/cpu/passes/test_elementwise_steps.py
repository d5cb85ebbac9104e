import pytest

from aioinfer.backends.cpu.onednn.post_ops import PostOp
from aioinfer.backends.cpu.onednn.unary_steps import FLOAT32_MOST
from aioinfer.backends.cpu.passes.elementwise_steps import Steps, steps_of
from unit.backends.cpu.passes.fused_models import parse_typed
from unit.runtime.passes.small_models import value_of

MODEL = """g (float[2,3] x, float[2,3] z) => (float[2,3] y)
<float low = {{-1}}, float high = {{6}}, float zero = {{0}}, float half = {{0.5}},
 float[1,1] flat = {{2}}, int64 square = {{2}}, float minus = {{-1}},
 float huge = {{3.0e38}}> {{
    y = {node}
}}"""


def steps(node: str) -> list[str] | None:
    model = parse_typed(MODEL.format(node=node))
    maker = value_of(model, "y").producer
    assert maker is not None
    found = steps_of(maker, model.inputs[0])
    return None if found is None else found.numbered(1)


@pytest.mark.parametrize(
    ("node", "texts"),
    [
        ("Clip(x, zero, high)", ["clip(0.0,6.0)"]),
        ("Clip(x, zero)", [f"clip(0.0,{FLOAT32_MOST})"]),
        ("Clip(x, , high)", [f"clip({-FLOAT32_MOST},6.0)"]),
        ("Max(x, zero)", ["relu"]),
        ("Max(low, x)", ["clip(-1.0,inf)"]),
        ("Min(x, high)", ["clip(-inf,6.0)"]),
        ("LeakyRelu(x)", ["relu(0.01,0.0)"]),
        ("PRelu(x, half)", ["relu(0.5,0.0)"]),
        ("HardSigmoid<alpha=0.5, beta=0.25>(x)", ["hardsigmoid(0.5,0.25)"]),
        ("Gelu(x)", ["gelu_erf"]),
        ('Gelu<approximate="tanh">(x)', ["gelu_tanh"]),
        ("Neg(x)", ["linear(-1.0,0.0)"]),
        ("Reciprocal(x)", ["pow(1.0,-1.0)"]),
        ("Div(half, x)", ["pow(0.5,-1.0)"]),
        ("Div(x, half)", ["linear(2.0,0.0)"]),
        ("Mul(x, flat)", ["linear(2.0,0.0)"]),
        ("Pow(x, square)", ["square"]),
        ("Pow(x, half)", ["sqrt"]),
        ("Pow(x, minus)", ["pow(1.0,-1.0)"]),
        ("Mul(x, x)", ["square"]),
        ("Add(x, x)", ["linear(2.0,0.0)"]),
        ("Sum(x, half)", ["linear(1.0,0.5)"]),
        ("Sub(z, x)", ["linear(-1.0,0.0)", "add(1)"]),
        ("Max(z, x)", ["max(1)"]),
    ],
)
def test_each_operator_has_its_words(node: str, texts: list[str]) -> None:
    assert steps(node) == texts


@pytest.mark.parametrize(
    "node",
    [
        "Erf(x)",
        "Div(z, x)",
        "Div(x, zero)",
        "Div(x, huge)",
        "Add(x, zero)",
        "Sub(x, zero)",
        "Sub(zero, x)",
        "Pow(x, high)",
        "Pow(half, x)",
        "Clip(x, high, zero)",
        "PRelu(z, x)",
        "Sub(x, x)",
        "Sum(x, z, half)",
        "Softmax(x)",
        "com.acme.Swirl(x)",
    ],
)
def test_others_have_none(node: str) -> None:
    assert steps(node) is None


def test_a_factor_and_a_summand_become_one_step() -> None:
    scale, shift = PostOp.unary("linear", 2.0), PostOp.unary("linear", 1.0, 3.0)
    both = Steps((scale,)).then(Steps((shift,)))
    assert both.numbered(1) == ["linear(2.0,3.0)"]
    other_order = Steps((shift,)).then(Steps((scale,)))
    assert other_order.numbered(1) == ["linear(1.0,3.0)", "linear(2.0,0.0)"]


def test_operands_are_counted_on() -> None:
    model = parse_typed(MODEL.format(node="Add(x, z)"))
    x, z = model.inputs
    first = Steps((PostOp.binary("add", 0),), (x,))
    both = first.then(Steps((PostOp.unary("relu"), PostOp.binary("mul", 0)), (z,)))
    assert both.operands == (x, z)
    assert both.numbered(3) == ["add(3)", "relu", "mul(4)"]
