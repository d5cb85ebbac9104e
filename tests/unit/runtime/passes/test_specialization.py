import numpy as np
import pytest

from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, TensorType, check_graph, is_static
from aioinfer.runtime.passes import specialize, specialize_with_report
from onnx_text import parse
from unit.runtime.passes.small_models import evaluate, node_lines, shape_of, value_of

FLATTEN = """g (float[batch,3,side] x, float[batch] weight) => (float[batch,flat] y) {
    shape = Shape(x)
    zero = Constant<value_int=0>()
    axes = Constant<value_ints=[0]>()
    rest = Constant<value_ints=[-1]>()
    batch_length = Gather(shape, zero)
    first = Unsqueeze(batch_length, axes)
    target = Concat<axis=0>(first, rest)
    flat = Reshape(x, target)
    one = Constant<value_ints=[1]>()
    column = Unsqueeze(weight, one)
    y = Mul(flat, column)
}"""

SPLIT_HEADS = """g (float[batch,seq,12] x) => (float[batch,3,seq,4] y) {
    zero = Constant<value_int=0>()
    one = Constant<value_int=1>()
    axes = Constant<value_ints=[0]>()
    heads = Constant<value_ints=[3]>()
    shape = Shape(x)
    b = Gather(shape, zero)
    s = Gather(shape, one)
    width = Shape<start=2>(x)
    width_of_head = Div(width, heads)
    b1 = Unsqueeze(b, axes)
    s1 = Unsqueeze(s, axes)
    target = Concat<axis=0>(b1, s1, heads, width_of_head)
    split = Reshape(x, target)
    y = Transpose<perm=[0,2,1,3]>(split)
}"""


def assert_static(model) -> None:
    for node in model.graph.nodes:
        for value in node.outputs:
            assert is_static(shape_of(value)), value


def test_shape_arithmetic_disappears_and_everything_is_static() -> None:
    special = specialize(parse(FLATTEN), {"x": (2, 3, 5)})
    assert str(special).splitlines() == [
        "graph g {",
        "  input %x: float32[2,3,5]",
        "  input %weight: float32[2]",
        "  constant %one: int64[1] = [1]",
        "  constant %target: int64[2] = [2,-1]",
        "  %flat: float32[2,15] = Reshape(%x, %target)  # Reshape_0",
        "  %column: float32[2,1] = Unsqueeze(%weight, %one)  # Unsqueeze_1",
        "  %y: float32[2,15] = Mul(%flat, %column)  # Mul_0",
        "  return %y",
        "}",
    ]


def test_arithmetic_over_several_lengths_disappears() -> None:
    special = specialize(parse(SPLIT_HEADS), {"x": (2, 7, 12)})
    assert [line.split("#")[1].strip() for line in node_lines(special)] == [
        "Reshape_0",
        "Transpose_0",
    ]
    assert shape_of(special.outputs[0]) == (2, 3, 7, 4)
    assert_static(special)


def test_the_specialised_model_computes_the_same() -> None:
    model = parse(SPLIT_HEADS)
    x = np.arange(2 * 7 * 12, dtype=np.float32).reshape(2, 7, 12)
    special = specialize(model, {"x": x.shape})
    np.testing.assert_array_equal(evaluate(special, {"x": x})["y"], evaluate(model, {"x": x})["y"])


def test_the_model_given_is_not_changed_and_constants_share_their_bytes() -> None:
    model = parse(
        """g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}> {
            a = Identity(x) y = Add(a, w)
        }"""
    )
    before = str(model)
    special = specialize(model, {"x": (4, 2)})
    assert str(model) == before
    assert value_of(special, "w").constant is value_of(model, "w").constant
    check_graph(model.graph)
    check_graph(special.graph)


def test_one_model_serves_many_shapes() -> None:
    model = parse(FLATTEN)
    for batch, side in [(1, 1), (4, 2), (3, 0)]:
        special = specialize(model, {"x": (batch, 3, side)})
        assert shape_of(special.outputs[0]) == (batch, 3 * side)
        assert_static(special)


def test_stale_types_of_intermediate_values_do_not_survive() -> None:
    model = parse(
        """g (float[N,4] x) => (float[N,4] y) {
            a = Relu(x) s = Shape(a) r = Reshape(a, s) y = Neg(r)
        }"""
    )
    value_of(model, "a").type = TensorType(DType.FLOAT32, (1, 4))
    special = specialize(model, {"x": (3, 4)})
    assert shape_of(value_of(special, "a")) == (3, 4)
    assert node_lines(special) == ["a = Relu(x)  # Relu_0", "y = Neg(a)  # Neg_0"]


def test_what_depends_on_data_stays_dynamic_with_the_symbols_of_the_file() -> None:
    model = parse("g (float[N] x) => (int64[1,hits] y) { a = Abs(x) y = NonZero(a) }")
    special = specialize(model, {"x": (6,)})
    assert shape_of(value_of(special, "a")) == (6,)
    assert shape_of(special.outputs[0]) == (1, "hits")


def test_an_operator_without_inference_keeps_what_the_file_says_of_it() -> None:
    model = parse("g (float[N,2] x) => (float[N,2] y) { a = com.acme.Swirl(x) y = Relu(a) }")
    value_of(model, "a").type = TensorType(DType.FLOAT32, ("N", 2))
    special = specialize(model, {"x": (5, 2)})
    assert shape_of(value_of(special, "a")) == (5, 2)
    assert shape_of(special.outputs[0]) == (5, 2)


def test_inputs_that_are_left_open_stay_open() -> None:
    model = parse(
        "g (float[N,2] x, float[M] z) => (float[N,2] y, float[M] v) { y = Neg(x) v = Neg(z) }"
    )
    special = specialize(model, {"x": (5, 2)})
    assert [shape_of(value) for value in special.outputs] == [(5, 2), ("M",)]


def test_bodies_are_specialised_too() -> None:
    model = parse(
        """g (bool c, float[N,2] x) => (float[A,B] y) {
            y = If (c) <
                then_branch = t () => (float[C,D] p) {
                    s = Shape(x)
                    p = ConstantOfShape(s)
                },
                else_branch = e () => (float[E,F] q) { q = Exp(x) }
            >
        }"""
    )
    special = specialize(model, {"x": (3, 2)})
    (node,) = special.graph.nodes
    then_branch, else_branch = node.attributes["then_branch"], node.attributes["else_branch"]
    assert len(then_branch) == 0
    assert then_branch.outputs[0].constant.shape == (3, 2)
    assert shape_of(else_branch.outputs[0]) == (3, 2)
    assert shape_of(special.outputs[0]) == (3, 2)


def test_loop_bodies_keep_the_types_of_their_inputs() -> None:
    model = parse(
        """g (int64 trips, bool go, float[N] x) => (float[N] y) {
            y = Loop (trips, go, x) <
                body = b (int64 i, bool on, float[N] state) => (bool still, float[N] next) {
                    still = Identity(on)
                    next = Neg(state)
                }
            >
        }"""
    )
    special = specialize(model, {"x": (3,)})
    (node,) = special.graph.nodes
    body = node.attributes["body"]
    assert [value.type.dtype for value in body.inputs] == [DType.INT64, DType.BOOL, DType.FLOAT32]
    assert [node.op_type for node in body.nodes] == ["Identity", "Neg"]


def test_arithmetic_of_many_layers_in_a_row_disappears() -> None:
    layer = """
    width{0} = Shape<start=1>(x{0})
    doubled{0} = Mul(width{0}, two)
    halved{0} = Div(doubled{0}, two)
    target{0} = Concat<axis=0>(rest, halved{0})
    shaped{0} = Reshape(x{0}, target{0})
    x{1} = Relu(shaped{0})"""
    layers = "".join(layer.format(index, index + 1) for index in range(30))
    special = specialize(
        parse(
            f"""g (float[batch,width] x0) => (float[b,w] x30) {{
    two = Constant<value_int=2>()
    rest = Constant<value_ints=[-1]>(){layers}
}}"""
        ),
        {"x0": (2, 3)},
    )
    assert_static(special)
    assert {node.op_type for node in special.graph.nodes} <= {"Relu", "Reshape"}


def test_the_report_covers_all_rounds() -> None:
    model = parse(FLATTEN)
    names = [name for node in model.graph.nodes for name in node.fused_from]
    special, report = specialize_with_report(model, {"x": (2, 3, 5)})
    carried = {name for node in special.graph.nodes for name in node.fused_from}
    assert set(names) == carried | set(report.removed_names)
    assert not carried & set(report.removed_names)


def test_affinities_survive() -> None:
    model = parse(FLATTEN)
    model.node("Mul_0").affinity = "MOCK.1"
    assert specialize(model, {"x": (2, 3, 5)}).node("Mul_0").affinity == "MOCK.1"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (2, 3, 5), "weight": (4,)}, "symbol 'batch' would be 2 .*'x'.* and 4"),
        ({"X": (2, 3, 5)}, "no input 'X'; did you mean 'x'"),
        ({"x": (2, 4, 5)}, "axis 1"),
    ],
)
def test_contradicting_shapes_are_refused(shapes, message: str) -> None:
    with pytest.raises(TensorError, match=message):
        specialize(parse(FLATTEN), shapes)


LOOPED = """g (int64 n, float[width] x) => (float[width] last, float[k,width] seen) {
    last, seen = Loop(n, "", x) <body = b (int64 i, bool go, float[width] s)
        => (bool on, float[width] t, float[width] item) {
        on = Identity(go)
        t = Add(s, x)
        item = Abs(t)
    }>
}"""


def test_what_a_loop_collects_keeps_the_lengths_that_its_body_promises() -> None:
    special = specialize(parse(LOOPED), {"x": (3,)})
    (loop,) = special.graph.nodes
    (body,) = loop.bodies()
    assert shape_of(body.inputs[0]) == ()
    assert shape_of(body.outputs[2]) == (3,)
    state = body.outputs[1].type
    assert state == TensorType(DType.FLOAT32, (3,)), "an Add of what it was keeps its shape"
    assert shape_of(loop.outputs[1]) == ("k", 3)


def test_a_counter_keeps_the_shape_in_which_the_body_wants_it() -> None:
    text = LOOPED.replace("int64 i,", "int64[1] i,")
    (loop,) = specialize(parse(text), {"x": (3,)}).graph.nodes
    assert shape_of(loop.bodies()[0].inputs[0]) == (1,)
