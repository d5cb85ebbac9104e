import pytest

from aioinfer.backends.cpu.onednn.post_ops import CPU_DOMAIN
from aioinfer.runtime.graph import DType, Model
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from aioinfer.runtime.passes.fusion.layer_normalization_fusion import LayerNormalizationFusion
from unit.runtime.passes.transformer_models import assert_same, fused, lines, ops, typed

HEAD = """g (float[2,3,4] x) => (float[2,3,4] y) <
    int64[1] last = {-1}, int64[2] last_two = {1, 2}, int64[1] middle = {1}, float two = {2},
    float half = {0.5}, float minus_half = {-0.5}, float one = {1}, float[1] eps = {1e-5},
    float[4] gamma = {1, 2, 3, 0.5}, float[4] beta = {-1, 0, 1, 2},
    float[1,1,4] wide_gamma = {1, 2, 3, 0.5}, float[3,1] column = {1, 2, 3}
> {"""
MOMENTS = """
    m = ReduceMean(x, last) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, last)
    e = Add(v, eps) s = Sqrt(e)"""
SQUARES = "q = Pow(x, two) v = ReduceMean(q, last) e = Add(v, eps) s = Sqrt(e)"


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}")


def fuse(model: Model, cache: ConstantCache | None = None) -> Model:
    return fused(model, LayerNormalizationFusion(cache, domain=CPU_DOMAIN))


def test_the_usual_form_becomes_one_node() -> None:
    model = model_of(f"{MOMENTS} n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta)")
    found = fuse(model)
    assert lines(model) == [
        "m = ReduceMean(x, last)",
        "d = Sub(x, m)",
        "q = Pow(d, two)",
        "v = ReduceMean(q, last)",
        "e = Add(v, eps)",
        "s = Sqrt(e)",
        "n = Div(d, s)",
        "g = Mul(n, gamma)",
        "y = Add(g, beta)",
    ]
    assert lines(found) == ["y = cpu::LayerNormalization(x, gamma, beta) {axis=-1, epsilon=1e-05}"]
    assert list(found.graph.initializers) == ["gamma", "beta"]
    assert len(found.node("Add_1").fused_from) == 9
    assert_same(model, found)


@pytest.mark.parametrize(
    "nodes",
    [
        f"{MOMENTS} i = Reciprocal(s) n = Mul(d, i) g = Mul(gamma, n) y = Add(beta, g)",
        f"{MOMENTS} i = Div(one, s) n = Mul(i, d) g = Mul(n, gamma) y = Add(g, beta)",
        f"{MOMENTS} d2 = Sub(x, m) n = Div(d2, s) g = Mul(n, gamma) y = Add(g, beta)",
        MOMENTS.replace("Pow(d, two)", "Mul(d, d)") + "n = Div(d, s) y = Mul(n, gamma)",
        MOMENTS.replace("Sqrt(e)", "Pow(e, half)") + "n = Div(d, s) y = Add(n, beta)",
        MOMENTS.replace("Sqrt(e)", "Pow(e, minus_half)") + "n = Mul(d, s) y = Add(n, beta)",
        MOMENTS.replace("Add(v, eps)", "Add(eps, v)") + "y = Div(d, s)",
        f"{MOMENTS} n = Div(d, s) g = Mul(n, wide_gamma) y = Add(g, beta)",
        MOMENTS.replace("last", "last_two") + "n = Div(d, s) y = Neg(n)",
        "m2 = ReduceMean(x, last)"
        + MOMENTS.replace("q = Pow(d, two)", "d2 = Sub(x, m2) q = Mul(d2, d2)")
        + "n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta)",
    ],
)
def test_other_forms_of_a_layer_normalization(nodes: str) -> None:
    model = model_of(nodes)
    found = fuse(model)
    assert ops(found) - ops(model_of("y = Neg(x)")) == {"cpu::LayerNormalization": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    "nodes",
    [
        f"{SQUARES} n = Div(x, s) y = Mul(n, gamma)",
        f"{SQUARES} i = Reciprocal(s) n = Mul(x, i) y = Mul(gamma, n)",
        f"{SQUARES} i = Div(one, s) n = Mul(x, i) y = Mul(gamma, n)",
        SQUARES.replace("Pow(x, two)", "Mul(x, x)") + "y = Div(x, s)",
        SQUARES.replace("Sqrt(e)", "Pow(e, minus_half)") + "n = Mul(s, x) y = Mul(n, gamma)",
        SQUARES.replace("last", "last_two") + "y = Div(x, s)",
    ],
)
def test_forms_of_an_rms_normalization(nodes: str) -> None:
    model = model_of(nodes)
    found = fuse(model)
    assert ops(found) == {"cpu::RMSNormalization": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    ("last_node", "left"),
    [
        ("g = Mul(n, column) y = Add(g, beta)", {"Mul": 1, "Add": 1}),
        ("y = Mul(n, x)", {"Mul": 1}),
        ("g = Mul(n, gamma) y = Add(g, x)", {"Add": 1}),
        ("g = Mul(n, gamma) y = Add(g, g)", {"Add": 1}),
        ("y = Add(n, one)", {"Add": 1}),
    ],
)
def test_what_is_no_scale_or_shift_stays_beside_it(last_node: str, left: dict[str, int]) -> None:
    model = model_of(f"{MOMENTS} n = Div(d, s) {last_node}")
    found = fuse(model)
    assert ops(found) == {"cpu::LayerNormalization": 1, **left}
    assert_same(model, found)


def test_an_rms_normalization_has_no_shift() -> None:
    model = model_of(f"{SQUARES} n = Div(x, s) g = Mul(n, gamma) y = Add(g, beta)")
    found = fuse(model)
    assert ops(found) == {"cpu::RMSNormalization": 1, "Add": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    "nodes",
    [
        MOMENTS.replace("last", "middle") + "y = Div(d, s)",
        MOMENTS.replace("Pow(d, two)", "Mul(d, x)") + "y = Div(d, s)",
        MOMENTS.replace("Pow(d, two)", "Pow(x, two)") + "y = Div(d, s)",
        MOMENTS.replace("Add(v, eps)", "Add(v, m)") + "y = Div(d, s)",
        MOMENTS.replace("Add(v, eps)", "Sub(v, eps)") + "y = Div(d, s)",
        MOMENTS.replace("Sqrt(e)", "Exp(e)") + "y = Div(d, s)",
        MOMENTS.replace("Sqrt(e)", "Pow(e, minus_half)") + "y = Div(d, s)",
        f"{MOMENTS} y = Div(s, d)",
        f"{MOMENTS} y = Mul(d, s)",
        f"{MOMENTS} i = Div(two, s) y = Mul(d, i)",
        f"{MOMENTS} y = Div(x, s)",
        f"{MOMENTS} n = Div(d, s) y = Add(n, s)",
    ],
)
def test_what_is_something_else_stays(nodes: str) -> None:
    model = model_of(nodes)
    assert ops(fuse(model)) == ops(model)


def test_what_others_use_stays() -> None:
    text = f"{HEAD} {MOMENTS} y = Div(d, s) }}".replace("y)", "y, float[2,3,1] v)", 1)
    model = typed(text)
    assert ops(fuse(model)) == ops(model)


def test_a_mean_of_squares_over_other_axes_than_the_mean_is_a_norm_of_what_is_centred() -> None:
    nodes = MOMENTS.replace("v = ReduceMean(q, last)", "v = ReduceMean(q, last_two)")
    model = model_of(f"{nodes} y = Div(d, s)")
    found = fuse(model)
    assert ops(found) == {"ReduceMean": 1, "Sub": 1, "cpu::RMSNormalization": 1}
    assert_same(model, found)


def test_other_element_types_stay() -> None:
    text = f"{HEAD} {MOMENTS} n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta) }}"
    model = typed(text.replace("float", "double"))
    assert ops(fuse(model)) == ops(model)


def test_other_floats_have_to_be_allowed() -> None:
    text = f"{HEAD} {MOMENTS} n = Div(d, s) g = Mul(n, gamma) y = Neg(g) }}"
    model = typed(text.replace("float", "double"))
    assert ops(fuse(model)) == ops(model)
    found = fused(model, LayerNormalizationFusion(dtypes=[DType.FLOAT64]))
    assert ops(found) == {"LayerNormalization": 1, "Neg": 1}
    constants = [value.constant for value in found.graph.initializers.values()]
    assert {array.dtype.name for array in constants if array is not None} == {"float64"}


def test_without_lengths_it_needs_scale_and_shift() -> None:
    whole = f"{HEAD} {MOMENTS} n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta) }}"
    bare = f"{HEAD} {MOMENTS} y = Div(d, s) }}"
    is_open = [text.replace("float[2,3,4]", "float[A,B,C]") for text in (whole, bare)]
    found = [ops(fuse(typed(text))) for text in is_open]
    assert found[0] == {"cpu::LayerNormalization": 1}
    assert found[1] == {"ReduceMean": 2, "Sub": 1, "Pow": 1, "Add": 1, "Sqrt": 1, "Div": 1}


def test_new_constants_are_the_same_for_all_plans() -> None:
    cache = ConstantCache()
    nodes = f"{MOMENTS} n = Div(d, s) g = Mul(n, wide_gamma) y = Neg(g)"
    model = model_of(nodes)
    plans = [fuse(model, cache) for _ in range(2)]
    first, second = ([v.constant for v in plan.graph.initializers.values()] for plan in plans)
    assert [array.tolist() for array in first if array is not None] == [[1, 2, 3, 0.5], [0] * 4]
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert_same(model, plans[1])


def test_attributes_name_the_axes_in_old_operator_sets() -> None:
    model = model_of(f"{MOMENTS} n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta)")
    expected = ops(fuse(model))
    for node in model.graph.nodes_of("ReduceMean"):
        node.replace_input(1, None)
        node.attributes["axes"] = [2]
    assert ops(fuse(model)) == expected == {"cpu::LayerNormalization": 1}


def test_nodes_for_different_devices_stay_apart() -> None:
    model = model_of(f"{MOMENTS} y = Div(d, s)")
    model.node("Sqrt_0").affinity = "CPU.1"
    before = ops(model)
    run_passes(model, [LayerNormalizationFusion(domain=CPU_DOMAIN)])
    assert ops(model) == before
