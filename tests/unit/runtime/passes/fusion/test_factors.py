import pytest

from aioinfer.runtime.passes.fusion.factors import product_of
from unit.backends.cpu.passes.fused_models import parse_typed
from unit.runtime.passes.small_models import value_of

MODEL = """g (float[2] x, float[2] z) => (float[2] y)
<float two = {{2}}, float three = {{3}}, float four = {{4}}, float zero = {{0}}> {{
    {nodes}
}}"""


@pytest.mark.parametrize(
    ("nodes", "factors", "coefficient", "node_count"),
    [
        ("y = Relu(x)", "y", 1.0, 0),
        ("y = Mul(x, z)", "xz", 1.0, 1),
        ("a = Mul(two, x) y = Mul(a, z)", "xz", 2.0, 2),
        ("a = Mul(x, z) b = Div(a, four) y = Neg(b)", "xz", -0.25, 3),
        ("a = Mul(x, two) y = Pow(a, three)", "xxx", 8.0, 2),
        ("a = Pow(x, two) y = Mul(a, x)", "xxx", 1.0, 2),
        ("y = Div(x, zero)", "y", 1.0, 0),
        ("y = Div(two, x)", "y", 1.0, 0),
        ("y = Pow(x, z)", "y", 1.0, 0),
        ("a = Exp(x) y = Mul(a, two)", "a", 2.0, 1),
    ],
)
def test_a_product_is_taken_apart(
    nodes: str, factors: str, coefficient: float, node_count: int
) -> None:
    product = product_of(value_of(parse_typed(MODEL.format(nodes=nodes)), "y"))
    assert "".join(value.name for value in product.factors) == factors
    assert product.coefficient == coefficient
    assert len(set(product.nodes)) == node_count


def test_what_others_use_is_a_factor_of_its_own() -> None:
    model = parse_typed(MODEL.format(nodes="a = Mul(x, two) b = Exp(a) y = Mul(a, b)"))
    product = product_of(value_of(model, "y"))
    assert [value.name for value in product.factors] == ["a", "b"]


def test_one_of_the_factors_is_left_out() -> None:
    model = parse_typed(MODEL.format(nodes="a = Mul(x, x) y = Mul(a, z)"))
    x, z = model.inputs
    product = product_of(value_of(model, "y"))
    assert product.without(z) == [x, x]
    assert product.without(x) == [x, z]
    assert product.without(value_of(model, "y")) is None


def test_products_of_many_factors_are_left_whole() -> None:
    rows = "v0 = Mul(x, x) v1 = Mul(v0, v0) v2 = Pow(v1, three) v3 = Pow(v2, three)"
    y = value_of(parse_typed(MODEL.format(nodes=f"{rows} y = Mul(v3, z)")), "y")
    assert [value.name for value in product_of(y).factors] == ["v3", "z"]
