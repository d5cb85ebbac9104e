import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Model
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.fusion.gelu_fusion import GeluFusion
from unit.runtime.passes.transformer_models import assert_same, fused, lines, typed

HEAD = """g (float[2,3] x) => (float[2,3] y) <float half = {0.5}, float one = {1}, float two = {2},
 float three = {3}, float root = {1.4142135}, float inverse = {0.70710677},
 float slope = {0.7978846}, float bend = {0.044715}, float[1,1,1] wide = {0.5}> {"""
ERF = "d = Div(x, root) e = Erf(d) g = Add(e, one)"
TANH = """p = Pow(x, three) q = Mul(p, bend) r = Add(x, q) t = Mul(r, slope) e = Tanh(t)
 g = Add(one, e)"""
HALF_LAST = "h = Mul(x, g) y = Mul(h, half)"
HALF_FIRST = "h = Mul(x, half) y = Mul(h, g)"


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}", opset=20)


@pytest.mark.parametrize(
    ("nodes", "approximate"),
    [
        (f"{ERF} {HALF_LAST}", "none"),
        (f"{ERF} {HALF_FIRST}", "none"),
        (f"{ERF.replace('Div(x, root)', 'Mul(inverse, x)')} h = Mul(g, x) y = Div(h, two)", "none"),
        (f"{TANH} {HALF_LAST}", "tanh"),
        (f"{TANH} {HALF_FIRST}", "tanh"),
        (
            "s = Mul(x, x) b = Mul(s, bend) r = Add(one, b) v = Mul(x, slope) t = Mul(v, r) "
            f"e = Tanh(t) g = Add(one, e) {HALF_LAST}",
            "tanh",
        ),
    ],
)
def test_what_exporters_spell_out_becomes_onnx_s_own(nodes: str, approximate: str) -> None:
    model = model_of(nodes)
    found = fused(model, GeluFusion())
    assert lines(found) == [f"y = Gelu(x) {{approximate={approximate}}}"]
    (node,) = found.graph.nodes
    assert set(node.fused_from) == {other.name for other in model.graph.nodes}
    x = np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)
    assert_same(model, found, {"x": x})


@pytest.mark.parametrize(
    "nodes",
    [
        f"{ERF.replace('root', 'two')} {HALF_LAST}",
        f"{ERF} h = Mul(x, g) y = Mul(h, two)",
        f"{ERF} h = Mul(x, g) y = Mul(g, half)",
        f"{TANH.replace('Pow(x, three)', 'Pow(x, two)')} {HALF_LAST}",
        "s = Sigmoid(x) y = Mul(x, s)",
    ],
)
def test_what_only_looks_like_one_stays(nodes: str) -> None:
    assert run_passes(model_of(nodes), [GeluFusion()]).patch_count == 0


def test_a_part_that_others_need_keeps_it_apart() -> None:
    text = f"{HEAD} {ERF} {HALF_LAST} }}".replace("y)", "y, float[2,3] g)", 1)
    assert run_passes(typed(text, opset=20), [GeluFusion()]).patch_count == 0


def test_a_constant_with_more_axes_changes_the_shape_and_stays() -> None:
    text = f"{HEAD} {ERF} h = Mul(x, g) y = Mul(h, wide) }}"
    model = typed(text.replace("float[2,3] y", "float[1,2,3] y"), opset=20)
    assert run_passes(model, [GeluFusion()]).patch_count == 0


def test_other_floats_have_to_be_allowed() -> None:
    text = f"{HEAD} {ERF} {HALF_LAST} }}".replace("float", "double")
    assert run_passes(typed(text), [GeluFusion()]).patch_count == 0
    found = fused(typed(text), GeluFusion([DType.FLOAT64]))
    assert lines(found) == ["y = Gelu(x) {approximate=none}"]


def test_other_types_and_nodes_for_different_devices_stay() -> None:
    text = f"{HEAD} {ERF} {HALF_LAST} }}"
    assert run_passes(typed(text.replace("float", "double")), [GeluFusion()]).patch_count == 0
    model = typed(text)
    model.node("Erf_0").affinity = "CPU.1"
    assert run_passes(model, [GeluFusion()]).patch_count == 0
