import pytest

from aioinfer.runtime.graph import Model
from aioinfer.runtime.passes.fusion.flat_gemm_fusion import FlatGemmFusion
from unit.runtime.passes.transformer_models import assert_same, fused, lines, ops, typed

HEAD = """g (float[2,3,4] x) => (float[2,3,2] y) <
    int64[2] flat = {-1, 4}, int64[3] wide = {2, 3, 2}, int64[3] other = {3, 2, 2},
    float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] b = {10, 20},
    float[2,4] wt = {1, 2, 3, 4, 5, 6, 7, 8}, float[6,2] rows = {0,0,1,1,2,2,3,3,4,4,5,5}
> {"""
WHOLE = "f = Reshape(x, flat) p = Gemm(f, w, b) y = Reshape(p, wide)"


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}")


def fuse(model: Model) -> Model:
    return fused(model, FlatGemmFusion())


def test_rows_are_multiplied_where_they_are() -> None:
    model = model_of(WHOLE)
    found = fuse(model)
    assert lines(model) == [
        "f = Reshape(x, flat)",
        "p = Gemm(f, w, b)",
        "y = Reshape(p, wide)",
    ]
    assert lines(found) == ["y_matmul = MatMul(x, w)", "y = Add(y_matmul, b)"]
    assert found.node("Gemm_0_Add").fused_from == ("Gemm_0", "Reshape_1", "Reshape_0")
    assert_same(model, found)


def test_a_scalar_that_becomes_a_row_has_no_rows_to_keep() -> None:
    model = typed(
        "g (float x) => (float[2,1] y) < int64[2] row = {1, 1}, int64[2] wide = {2, 1}, "
        "float[1,2] w = {3, 4} > { f = Reshape(x, row) p = Gemm(f, w) y = Reshape(p, wide) }"
    )
    assert lines(fuse(model)) == lines(model)


def test_without_a_bias_there_is_no_addition() -> None:
    model = model_of(WHOLE.replace(", b)", ")"))
    found = fuse(model)
    assert lines(found) == ["y = MatMul(x, w)"]
    assert_same(model, found)


def test_a_flat_value_that_others_use_stays() -> None:
    model = model_of(f"{WHOLE.replace('y =', 'z =')} s = ReduceMax(f) y = Mul(z, s)")
    found = fuse(model)
    assert ops(found) == {"MatMul": 1, "Add": 1, "Reshape": 1, "ReduceMax": 1, "Mul": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    "nodes",
    [
        WHOLE.replace("Gemm(f, w, b)", "Gemm<alpha=2.0>(f, w, b)"),
        WHOLE.replace("Gemm(f, w, b)", "Gemm<beta=0.5>(f, w, b)"),
        WHOLE.replace("Gemm(f, w, b)", "Gemm<transB=1>(f, wt, b)"),
        WHOLE.replace("Gemm(f, w, b)", "Gemm(f, w, rows)"),
        WHOLE.replace("y = Reshape(p, wide)", "o = Reshape(p, other) y = Neg(o)"),
        WHOLE.replace("y = Reshape(p, wide)", "r = Relu(p) y = Reshape(r, wide)"),
        f"t = Transpose(x) {WHOLE.replace('Reshape(x', 'Reshape(t')}",
    ],
)
def test_other_forms_stay(nodes: str) -> None:
    text = f"{HEAD} {nodes} }}".replace("=> (float[2,3,2] y)", "=> (float y)")
    model = typed(text)
    assert ops(fuse(model)) == ops(model)


def test_unknown_lengths_stay() -> None:
    model = typed(f"{HEAD} {WHOLE} }}".replace("float[2,3,4] x", "float[A,B,4] x"))
    assert ops(fuse(model)) == ops(model)


def test_nodes_for_different_devices_stay_apart() -> None:
    model = model_of(WHOLE)
    model.node("Gemm_0").affinity = "CPU.1"
    assert ops(fuse(model)) == ops(model)
