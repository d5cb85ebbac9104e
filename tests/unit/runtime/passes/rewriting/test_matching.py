import numpy as np
import pytest

from aioinfer.runtime.graph import Value
from aioinfer.runtime.passes.rewriting.matching import (
    are_float32,
    commuted,
    integers_of,
    is_closed,
    is_near,
    made_by,
    only_user,
    rank_of,
    scalar_of,
    static_shape,
)
from unit.backends.cpu.passes.fused_models import parse_typed
from unit.runtime.passes.small_models import value_of


def test_the_only_user_uses_the_value_once_and_no_graph_returns_it() -> None:
    model = parse_typed(
        """g (float[2] x) => (float[2] y, float[2] d) {
            a = Relu(x) b = Mul(a, a) c = Neg(b) d = Exp(c) y = Abs(d)
        }"""
    )
    users = {name: only_user(value_of(model, name)) for name in "xabcdy"}
    found = {name: node.op_type for name, node in users.items() if node is not None}
    assert found == {"x": "Relu", "b": "Neg", "c": "Exp"}


def test_a_user_in_a_body_of_control_flow_cannot_be_fused() -> None:
    model = parse_typed(
        """g (bool c, float[2] x) => (float[2] y) {
            a = Relu(x)
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Exp(a) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
        }"""
    )
    assert only_user(value_of(model, "a")) is None


def test_operands_are_given_in_both_orders_only_if_that_is_the_same() -> None:
    model = parse_typed(
        "g (float[2] x, float[2] z) => (float[2] y) { a = Add(x, z) b = Sub(a, z) y = Relu(b) }"
    )

    def names(index: int) -> list[tuple[str, str]]:
        node = list(model.graph.nodes)[index]
        return [(left.name, right.name) for left, right in commuted(node)]

    assert names(0) == [("x", "z"), ("z", "x")]
    assert names(1) == [("a", "z")]
    assert names(2) == []


@pytest.mark.parametrize(
    ("array", "number"),
    [
        (np.float32(1.5), 1.5),
        ([[[2.0]]], 2.0),
        ([True], 1.0),
        ([1.0, 1.0], None),
        (np.array(["a"], object), None),
    ],
)
def test_a_number_is_a_constant_of_one_element(array: object, number: float | None) -> None:
    assert scalar_of(Value("c", None, np.asarray(array))) == number


def test_what_is_no_constant_is_no_number() -> None:
    assert scalar_of(Value("x")) is None
    assert scalar_of(None) is None
    assert not is_near(Value("x"), 1.0)


def test_numbers_are_compared_as_inexactly_as_files_have_them() -> None:
    assert is_near(0.7978, 0.7978845608)
    assert not is_near(0.79, 0.7978845608)
    assert is_near(Value("c", None, np.array(np.float16(0.044715))), 0.044715)
    assert not is_near(None, 1.0)


def test_lists_of_integers_are_read_from_constants() -> None:
    assert integers_of(Value("c", None, np.array([1, -1]))) == (1, -1)
    assert integers_of(Value("c", None, np.array(3, np.int32))) == (3,)
    assert integers_of(Value("c", None, np.array([1.0]))) is None
    assert integers_of(Value("x")) is None


def test_shapes_and_types_are_told_as_far_as_they_are_known() -> None:
    model = parse_typed("g (float[n,2] x, double[2] z) => (float[2] y) { y = Neg(x) }")
    x, z = model.inputs
    assert (rank_of(x), static_shape(x), static_shape(z)) == (2, None, (2,))
    assert (rank_of(Value("a")), static_shape(Value("a"))) == (None, None)
    assert are_float32(x, None)
    assert not are_float32(x, z)
    assert not are_float32(Value("a"))


def test_a_pattern_is_closed_if_nobody_else_needs_what_is_inside() -> None:
    model = parse_typed(
        """g (float[2] x) => (float[2] y, float[2] z) {
            a = Relu(x) b = Exp(a) y = Neg(b) z = Abs(a)
        }"""
    )
    relu, exp, neg, _ = model.graph.nodes
    assert is_closed([exp, neg], neg.outputs[0], model.graph)
    assert not is_closed([relu, exp, neg], neg.outputs[0], model.graph)
    exp.affinity = "CPU"
    assert not is_closed([exp, neg], neg.outputs[0], model.graph)


def test_the_maker_of_a_value_is_asked_for_its_operator_and_domain() -> None:
    model = parse_typed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    y = value_of(model, "y")
    assert made_by(y, "Exp", "Relu") is y.producer
    assert made_by(y, "Exp") is None
    assert made_by(y, "Relu", domain="aioinfer.cpu") is None
    assert made_by(model.inputs[0], "Relu") is None
