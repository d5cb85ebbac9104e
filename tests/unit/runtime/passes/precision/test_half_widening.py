"""float16 and bfloat16 in float32: where Casts stand, what stays as it is stored."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Model, TensorType
from aioinfer.runtime.passes import DeadCode, run_passes
from aioinfer.runtime.passes.precision.half_widening import HalfWidening
from unit.runtime.passes.small_models import evaluate, value_of
from unit.runtime.passes.transformer_models import lines, typed

KINDS = ["float16", "bfloat16"]


def widened(text: str, kind: str = "float16") -> Model:
    model = typed(text.replace("half", kind), 23)
    run_passes(model, [HalfWidening(), DeadCode()])
    assert run_passes(model, [HalfWidening()]).patch_count == 0
    return model


def dtypes(model: Model) -> list[str]:
    """Tell the types of inputs and outputs."""
    kinds = [value.type for value in (*model.inputs, *model.outputs)]
    return [kind.dtype.label for kind in kinds if isinstance(kind, TensorType)]


@pytest.mark.parametrize("kind", KINDS)
def test_casts_stand_at_inputs_and_outputs_alone(kind: str) -> None:
    model = widened("g (half[2] x) => (half[2] y) { a = Relu(x) b = Exp(a) y = Add(b, x) }", kind)
    number = DType[kind.upper()].value
    assert lines(model) == [
        "x_f32 = Cast(x) {to=1}",
        "a_f32 = Relu(x_f32)",
        "b_f32 = Exp(a_f32)",
        "y_f32 = Add(b_f32, x_f32)",
        f"y = Cast(y_f32) {{to={number}}}",
    ]
    assert dtypes(model) == [kind, kind]


def test_every_node_of_the_file_is_accounted_for() -> None:
    model = widened("g (half[2] x) => (half[2] y) { a = Relu(x) y = Exp(a) }")
    assert [node.fused_from for node in model.graph.nodes] == [
        ("Relu_0",),
        ("Relu_0",),
        ("Exp_0",),
        ("Exp_0",),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_constants_are_widened_once_and_the_stored_ones_are_gone(kind: str) -> None:
    model = widened(
        "g (half[2] x) => (half[2] y) <half[2] w = {1, 2}> { a = Mul(x, w) y = Add(a, w) }", kind
    )
    constants = [value.constant for value in model.graph.initializers.values()]
    assert [array.dtype for array in constants if array is not None] == [np.float32]


def test_casts_of_the_file_round_nothing() -> None:
    model = widened(
        "g (half[2] x) => (half[2] y) {"
        "  a = Exp(x) b = Cast<to = 1>(a) c = Sqrt(b) d = Cast<to = 10>(c) y = Neg(d) }"
    )
    assert [line.split(" = ")[1] for line in lines(model)] == [
        "Cast(x) {to=1}",
        "Exp(x_f32)",
        "Sqrt(a_f32)",
        "Neg(c)",
        "Cast(y_f32) {to=10}",
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", ["float", "int64"])
def test_whole_numbers_are_made_of_what_the_file_has_rounded(kind: str, given: str) -> None:
    text = (
        f"g ({given}[4] x, half[1] like) => (int64[4] y, bool[4] z, half[4] e) {{"
        "  a = CastLike(x, like) y = Cast<to = 7>(a) z = Cast<to = 9>(a) e = Neg(a) }"
    )
    x = np.array([2049, 1e-9, 2.99999, -1.99999]).astype("f4" if given == "float" else "i8")
    like = np.ones(1, DType[kind.upper()].numpy)
    made = evaluate(widened(text, kind), {"x": x, "like": like})
    wanted = evaluate(typed(text.replace("half", kind), 23), {"x": x, "like": like})
    np.testing.assert_array_equal(made["y"], wanted["y"])
    np.testing.assert_array_equal(made["z"], wanted["z"])
    assert made["y"].tolist() != x.astype(np.int64).tolist()


def test_float32_inputs_and_outputs_of_a_half_model_need_no_cast() -> None:
    model = widened(
        "g (float[2] x) => (float[2] y) <half[2] w = {1, 2}> {"
        "  a = Cast<to = 10>(x) b = Mul(a, w) y = Cast<to = 1>(b) }"
    )
    assert [line.partition(" {")[0] for line in lines(model)] == [
        "b_f32 = Mul(x, w_f32)",
        "y = Cast(b_f32)",
    ]


def test_a_rounded_value_that_leaves_the_graph_is_rounded() -> None:
    model = widened("g (float[2] x) => (half[2] y, half[2] z) { y = Cast<to = 10>(x) z = Exp(y) }")
    assert lines(model) == [
        "y = Cast(x) {to=10}",
        "z_f32 = Exp(x)",
        "z = Cast(z_f32) {to=10}",
    ]


def test_movers_of_stored_numbers_move_them_as_they_are() -> None:
    table = ", ".join(["1"] * 36)
    model = widened(
        "g (int64[2] ids, half[1,4] past, half[2,4] new) => (half[2,4] y, half[3,4] present)"
        f"  <half[9,4] table = {{{table}}}> {{"
        "  e = Gather(table, ids) y = Mul(e, e) n = Neg(new) present = Concat<axis = 0>(past, n) }"
    )
    assert lines(model) == [
        "e = Gather(table, ids)",
        "e_f32 = Cast(e) {to=1}",
        "y_f32 = Mul(e_f32, e_f32)",
        "y = Cast(y_f32) {to=10}",
        "new_f32 = Cast(new) {to=1}",
        "n_f32 = Neg(new_f32)",
        "n = Cast(n_f32) {to=10}",
        "present = Concat(past, n) {axis=0}",
    ]


def test_attributes_that_are_types_or_tensors_follow() -> None:
    model = widened(
        "g (half[2] x, int64[1] n) => (half[2] y) {"
        "  e = ConstantOfShape<value = float16[1] {2}>(n) c = CastLike(n, x) s = Add(e, c)"
        "  y = Add(x, s) }"
    )
    made = {node.op_type: node.attributes for node in model.graph.nodes}
    assert made["ConstantOfShape"]["value"].dtype == np.float32
    assert made["Cast"] is not None
    assert "CastLike" not in made


def test_a_cast_keeps_what_it_says_of_small_floats() -> None:
    model = widened(
        "g (half[2] x, float8e4m3fn[1] like) => (float8e4m3fn[2] y) {"
        "  y = CastLike<saturate = 0>(x, like) }"
    )
    (cast,) = (node for node in model.graph.nodes if "saturate" in node.attributes)
    assert cast.op_type == "Cast"
    assert cast.attributes == {"saturate": 0, "to": DType.FLOAT8E4M3FN.value}


def test_bodies_get_what_they_were_given() -> None:
    model = widened(
        "g (half[2] x, bool c) => (half[2] y) {"
        "  a = Exp(x)"
        "  b = If(c) <then_branch = t () => (half[2] p) { p = Neg(a) },"
        "             else_branch = f () => (half[2] q) { q = Abs(a) }>"
        "  y = Sqrt(b) }"
    )
    assert [node.op_type for node in model.graph.nodes] == [
        "Cast",
        "Exp",
        "Cast",
        "If",
        "Cast",
        "Sqrt",
        "Cast",
    ]


def test_a_float32_model_is_left_alone() -> None:
    model = typed("g (float[2] x) => (float[2] y) { a = Cast<to = 11>(x) y = Cast<to = 1>(a) }")
    assert run_passes(model, [HalfWidening()]).patch_count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_the_stored_model(kind: str) -> None:
    numbers = np.random.default_rng(3).normal(size=20)
    w, b = (", ".join(f"{item:.3f}" for item in part) for part in (numbers[:16], numbers[16:]))
    text = (
        f"g (half[3,4] x) => (half[3,4] y, int64[3] best) <float[4,4] w32 = {{{w}}},"
        f" float[4] b32 = {{{b}}}, int64[1] one = {{1}}> {{"
        f"  w = Cast<to = {DType[kind.upper()].value}>(w32) b = CastLike(b32, x)"
        "  p = MatMul(x, w) s = Add(p, b) r = Relu(s) m = ReduceMean(r, one)"
        "  d = Sub(r, m) y = Softmax(d) best = ArgMax<axis = 1, keepdims = 0>(y) }"
    )
    original = typed(text.replace("half", kind), 23)
    model = widened(text, kind)
    dtype = DType[kind.upper()].numpy
    given = {"x": np.random.default_rng(1).normal(size=(3, 4)).astype(dtype)}
    expected, found = evaluate(original, given), evaluate(model, given)
    assert found["y"].dtype == dtype
    bound = 4e-3 if kind == "float16" else 3e-2
    np.testing.assert_allclose(
        found["y"].astype(np.float32), expected["y"].astype(np.float32), atol=bound
    )
    assert value_of(model, "y").is_graph_output
