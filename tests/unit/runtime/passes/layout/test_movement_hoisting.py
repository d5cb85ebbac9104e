import numpy as np
import pytest

from aioinfer.runtime.graph import Model
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.layout.movement_hoisting import MovementHoisting
from aioinfer.runtime.passes.model_passes import model_passes
from unit.backends.cpu.passes.fused_models import fuse_by, parse_typed, run_fused
from unit.runtime.passes.small_models import evaluate

CONSTANTS = """<float[3] c = {1, 2, 3}, float s = {2}, float[1,1,3] d = {4, 5, 6},
 int64[1] last = {-1}, int64[1] low = {-9000}, int64[1] three = {3}>"""


def model_of(nodes: str, given: str = "uint8[n,4,5,3] x", rank: str = "[n,k,h,w]") -> Model:
    return parse_typed(f"g ({given}) => (float{rank} y) {CONSTANTS} {{ {nodes} }}")


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ("a = Cast <to = 1> (x) y = Transpose <perm = [0, 3, 1, 2]> (a)", "Transpose Cast"),
        ("a = Cast <to = 1> (x) y = Transpose (a)", "Transpose Cast"),
        ("a = Cast <to = 1> (x) y = Slice (a, last, low, three, last)", "Slice Cast"),
        (
            "a = Cast <to = 1> (x) b = Sub(a, c) e = Div(b, s) "
            "y = Transpose <perm = [0, 3, 1, 2]> (e)",
            "Transpose Cast Sub Div",
        ),
        (
            "a = Cast <to = 1> (x) b = Slice (a, last, low, three, last) e = Mul(d, b) "
            "y = Transpose <perm = [0, 3, 1, 2]> (e)",
            "Slice Transpose Cast Mul",
        ),
        (
            "a = Cast <to = 1> (x) b = Sub(c, a) e = Add(s, b) "
            "y = Transpose <perm = [3, 2, 0, 1]> (e)",
            "Transpose Cast Sub Add",
        ),
    ],
)
def test_what_moves_goes_before_what_converts_and_scales(nodes: str, ops: str) -> None:
    model = model_of(nodes)
    given = np.arange(120).reshape(2, 4, 5, 3).astype(np.uint8)
    wanted = evaluate(model, {"x": given})["y"]
    fuse_by(model, MovementHoisting())
    assert " ".join(node.op_type for node in model.graph.nodes) == ops
    assert model.outputs[0].name == "y"
    assert np.array_equal(evaluate(model, {"x": given})["y"], wanted)
    assert str(next(model.graph.nodes).outputs[0].type).startswith("uint8")


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Cast <to = 1> (x) b = Transpose <perm = [0, 3, 1, 2]> (a) "
        "m = ReduceSum <keepdims = 1> (a) y = Add(b, m)",
        "a = Cast <to = 1> (x) e = Sub(a, a) y = Transpose <perm = [0, 3, 1, 2]> (e)",
        "a = Cast <to = 1> (x) e = Relu(a) y = Transpose <perm = [0, 3, 1, 2]> (e)",
    ],
)
def test_what_others_use_or_is_no_constant_scale_stays(nodes: str) -> None:
    model = model_of(nodes)
    before = [node.name for node in model.graph.nodes]
    fuse_by(model, MovementHoisting())
    assert [node.name for node in model.graph.nodes] == before


def test_a_cast_to_less_stays_before_what_moves() -> None:
    model = model_of(
        "a = Cast <to = 1> (x) y = Transpose <perm = [1, 0]> (a)", "double[n,4] x", "[k,n]"
    )
    assert fuse_by(model, MovementHoisting())[0].startswith("a = Cast")


def test_an_activation_keeps_the_scale_that_ends_it() -> None:
    text = """g (float[n,4,5,3] x) => (float[n,3,4,5] y) <float s = {2}> {
        a = Sigmoid(x) b = Mul(a, s) y = Transpose <perm = [0, 3, 1, 2]> (b) }"""
    model = parse_typed(text)
    fuse_by(model, MovementHoisting())
    assert [node.op_type for node in model.graph.nodes] == ["Sigmoid", "Mul", "Transpose"]


def test_a_scale_before_a_transpose_goes_into_the_conv_behind_it() -> None:
    text = """g (uint8[n,4,4,3] x) => (float[n,1,4,4] y)
    <float[3] c = {1, 2, 4}, float[3] m = {1, 2, 3}, float[1,3,1,1] k = {1, 1, 1}> {
        a = Cast <to = 1> (x) b = Sub(a, m) e = Div(b, c)
        f = Transpose <perm = [0, 3, 1, 2]> (e) y = Conv(f, k) }"""
    model = parse_typed(text)
    given = np.arange(48).reshape(1, 4, 4, 3).astype(np.uint8)
    (wanted,) = run_fused(model, {"x": given})
    run_passes(model, model_passes())
    assert [node.op_type for node in model.graph.nodes] == ["Transpose", "Cast", "Conv"]
    assert np.allclose(run_fused(model, {"x": given})[0], wanted, atol=1e-5)


def test_a_scale_of_no_elements_is_turned_as_well() -> None:
    text = "g (uint8[1,1] x) => (float[k,h] y) <float[1,0] none = {}> { %s }"
    nodes = "a = Cast <to = 1> (x) b = Add(a, none) y = Transpose <perm = [1, 0]> (b)"
    model = parse_typed(text % nodes)
    fuse_by(model, MovementHoisting())
    assert evaluate(model, {"x": np.ones((1, 1), np.uint8)})["y"].shape == (0, 1)
