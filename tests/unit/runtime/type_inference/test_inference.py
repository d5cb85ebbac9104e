"""Types of whole graphs: what a contradiction does, and who has the last word."""

from __future__ import annotations

import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import DType, Graph, Model, Node, SequenceType, TensorType, Value
from aioinfer.runtime.graph.traversal import all_values
from aioinfer.runtime.type_inference import (
    ContradictionError,
    correct_graph_types,
    infer_graph_types,
)
from onnx_text import parse

BEHIND_SEQUENCE = """
g (float[2,3] x, float[4] z) => (seq(float[2,3]) p, float[9] y) {
    p = SequenceConstruct(x) t = Relu(x) y = Add(t, z)
}
"""


def unread(text: str) -> Model:
    """Parse a graph that reading would refuse: first a possible one, then its input is changed."""
    model = parse(text.replace("float[4] z", "float[3] z"))
    for value in model.graph.inputs:
        if value.name == "z":
            value.type = TensorType(DType.FLOAT32, (4,))
    return model


def test_a_contradiction_names_the_node_and_what_it_is_given_and_changes_nothing() -> None:
    model = unread("g (float[2,3] x, float[4] z) => (float[9] y) { t = Relu(x) y = Add(t, z) }")
    before = [value.type for node in model.graph.nodes for value in node.outputs]
    with pytest.raises(ContradictionError) as caught:
        infer_graph_types(model.graph)
    name = list(model.graph.nodes)[1].name
    assert isinstance(caught.value, ModelError)
    for part in (f"Add (node {name!r})", "[2,3]", "[4]", "broadcast", "'z' float32[4]"):
        assert part in str(caught.value)
    assert [value.type for node in model.graph.nodes for value in node.outputs] == before


def test_a_contradiction_behind_a_node_without_a_rule_is_found() -> None:
    model = unread(BEHIND_SEQUENCE)
    assert not infer_graph_types(model.graph)
    with pytest.raises(ContradictionError, match="Add"):
        correct_graph_types(model.graph)


def test_a_length_that_a_rule_leaves_open_is_told_by_nothing_else() -> None:
    model = parse(
        "g (float[2,k] x) => (int64[2,m] p, float[w,v] y) { p = NonZero(x) y = Transpose(x) }"
    )
    y = list(model.graph.nodes)[1].outputs[0]
    y.type = TensorType(DType.FLOAT32, (5, 7))
    correct_graph_types(model.graph)
    assert y.type == TensorType(DType.FLOAT32, ("k", 2))
    model.graph.inputs[0].type = TensorType(DType.FLOAT32, (2, None))
    y.type = TensorType(DType.FLOAT32, (5, 7))
    correct_graph_types(model.graph)
    assert y.type == TensorType(DType.FLOAT32, (None, 2))
    y.type = TensorType(DType.INT32, (5,))
    correct_graph_types(model.graph)
    assert y.type == TensorType(DType.FLOAT32, (None, 2))


def test_lengths_without_a_rule_are_opened_with_all_that_follows_from_them() -> None:
    model = parse("""
    g (float[2,k] x, float[4] z) => (float[2,m] p, float[m,2] q, float[2,k] y) {
        s = SequenceConstruct(x) i = Constant <value_int = 0> ()
        p = SequenceAt(s, i) q = Transpose(p) y = Relu(x)
    }
    """)
    _, p, q, y = (node.outputs[0] for node in model.graph.nodes)
    p.type, q.type = TensorType(DType.FLOAT32, (2, 6)), TensorType(DType.FLOAT32, (6, 2))
    y.type = TensorType(DType.FLOAT32, (9, 9))
    correct_graph_types(model.graph)
    assert p.type == q.type == TensorType(DType.FLOAT32, (None, None))
    assert y.type == TensorType(DType.FLOAT32, (2, "k"))


def test_the_lengths_of_what_a_sequence_holds_are_opened() -> None:
    model = parse("""
    g (float[7] x) => (seq(float[7]) s) { s = SequenceConstruct(x, x) }
    """)
    (s,) = next(iter(model.graph.nodes)).outputs
    s.type = SequenceType(TensorType(DType.FLOAT32, (9,)))
    correct_graph_types(model.graph)
    assert s.type == SequenceType(TensorType(DType.FLOAT32, (None,)))


def test_what_is_said_of_custom_operators_stays() -> None:
    model = parse("""
    g (float[2,k] x, float[4] z) => (float[a,b] y) { t = com.acme.Swirl(x) y = Relu(t) }
    """)
    t, y = (node.outputs[0] for node in model.graph.nodes)
    t.type = TensorType(DType.FLOAT32, (3, 5))
    correct_graph_types(model.graph)
    assert t.type == y.type == TensorType(DType.FLOAT32, (3, 5))


def test_lengths_that_depend_on_data_may_be_left_open() -> None:
    model = parse("g (float[2,3] x) => (int64[m,2] y) { p = NonZero(x) y = Transpose(p) }")
    before = [node.outputs[0].type for node in model.graph.nodes]
    for node in model.graph.nodes:
        node.outputs[0].type = None
    assert not infer_graph_types(model.graph)
    assert [node.outputs[0].type for node in model.graph.nodes] == [None, None]
    assert infer_graph_types(model.graph, leaves_lengths=True)
    assert [str(node.outputs[0].type) for node in model.graph.nodes] == [
        "int64[2,?]",
        "int64[?,2]",
    ]
    assert before[0] == TensorType(DType.INT64, (2, None))


BRANCHES = """
g (bool c, float[n,3] x, float[4] z) => (float[a,b] y) {
    y = If (c) <
        then_branch = t () => (float[d,e] p) { s = Relu(x) p = %s },
        else_branch = f () => (float[d,e] q) { q = %s }
    >
}
"""


@pytest.mark.parametrize(
    ("then", "other", "expected"),
    [
        ("Neg(s)", "Exp(x)", "float32[n,3]"),
        ("Neg(s)", "Transpose(x)", "float32[?,?]"),
        ("Concat <axis = 0> (s, x)", "Exp(x)", "float32[?,3]"),
        ("Neg(s)", "Identity(x)", "float32[n,3]"),
    ],
)
def test_an_if_gives_what_its_branches_agree_on(then: str, other: str, expected: str) -> None:
    model = parse(BRANCHES % (then, other))
    (node,) = model.graph.nodes
    node.outputs[0].type = None
    for body in node.bodies():
        for inner in body.nodes:
            inner.outputs[0].type = None
    assert infer_graph_types(model.graph)
    assert str(node.outputs[0].type) == expected
    assert str(next(iter(node.bodies()[0].nodes)).outputs[0].type) == "float32[n,3]"


@pytest.mark.parametrize(
    "branches",
    [
        ("Neg(s)", "Squeeze(z)"),
        ("Add(s, z)", "Exp(x)"),
        ("Neg(s)", "com.acme.Swirl(x)"),
        ("Neg(s)", "Cast <to = 7> (x)"),
    ],
    ids=["of other ranks", "an impossible one", "a custom one", "of other types"],
)
def test_branches_that_do_not_agree_tell_nothing_and_change_nothing(
    branches: tuple[str, str],
) -> None:
    model = parse(BRANCHES % ("Neg(s)", "Exp(x)"))
    other = parse(BRANCHES.replace("float[4] z", "float[n,3] z") % branches)
    z = other.graph.inputs[2]
    z.type = model.graph.inputs[2].type
    (node,) = other.graph.nodes
    inner = [made for body in node.bodies() for item in body.nodes for made in item.outputs]
    for value in inner:
        value.type = TensorType(DType.FLOAT32, (7, 7))
    before = [node.outputs[0].type, *(value.type for value in inner)]
    assert not infer_graph_types(other.graph, leaves_lengths=True)
    assert [node.outputs[0].type, *(value.type for value in inner)] == before


def types_of_loop(text: str) -> list[str]:
    """Forget all types of a graph whose one node is a loop, and infer its outputs' again."""
    model = parse(text)
    (node,) = model.graph.nodes
    for value in all_values(model.graph):
        if value not in model.graph.inputs:
            value.type = None
    assert infer_graph_types(model.graph, leaves_lengths=True)
    assert all(value.type is not None for value in all_values(model.graph))
    return [str(value.type) for value in node.outputs]


LOOP = """
g (int64 n, bool c, float[a,3] x, float[2,3] z) => (float[k,l] y, float[k,l,m] all) {
    y, all = Loop (n, c, %s) <body = b (int64 i, bool on, float[k,l] s)
        => (bool still, float[k,l] t, float[k,l] item) { still = %s t = %s item = Neg(s) }>
}
"""


@pytest.mark.parametrize(
    ("given", "goes_on", "made", "expected"),
    [
        ("x", "Identity(on)", "Relu(s)", ["float32[a,3]", "float32[?,a,3]"]),
        ("z", "Identity(c)", "Add(s, z)", ["float32[2,3]", "float32[?,2,3]"]),
        ("z", "Not(on)", "Concat<axis = 0>(s, z)", ["float32[?,3]", "float32[?,?,3]"]),
        ("z", "Not(on)", "Transpose(s)", ["float32[?,?]", "float32[?,?,?]"]),
        ("x", "Not(on)", "Transpose(z)", ["float32[?,?]", "float32[?,?,?]"]),
    ],
)
def test_a_state_has_the_lengths_that_no_iteration_changes(
    given: str, goes_on: str, made: str, expected: list[str]
) -> None:
    assert types_of_loop(LOOP % (given, goes_on, made)) == expected


def test_what_was_told_of_the_first_iteration_is_not_believed_of_the_next() -> None:
    """The state's shape is a constant in the first walk, and made of it is another state."""
    text = """
    g (int64 n, float[2] x, float[9] z) => (float[k] y, float[l] w) {
        y, w = Loop (n, "", x, z) <body = b (int64 i, bool on, float[k] s, float[l] v)
            => (bool still, float[k] t, float[l] u) {
                still = Identity(on) t = Concat<axis = 0>(s, s)
                h = Shape(s) u = ConstantOfShape(h)
            }>
    }
    """
    assert types_of_loop(text) == ["float32[?]", "float32[?]"]


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ("", ["float32[3]", "float32[a,3]"]),
        ("scan_output_axes = [1],", ["float32[3]", "float32[3,a]"]),
        ("scan_output_axes = [-2],", ["float32[3]", "float32[a,3]"]),
    ],
)
def test_a_scan_collects_as_many_items_as_it_is_given(axes: str, expected: list[str]) -> None:
    text = f"""
    g (float[3] s, float[a,3] x) => (float[k] y, float[k,l] all) {{
        y, all = Scan <num_scan_inputs = 1, {axes} body = b (float[3] s_, float[3] item)
            => (float[3] t, float[3] made) {{ t = Add(s_, item) made = Neg(t) }}> (s, x)
    }}
    """
    assert types_of_loop(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        LOOP % ("x", "Identity(on)", "Squeeze(s)"),
        LOOP % ("x", "Identity(on)", "Cast<to = 7>(s)"),
        LOOP % ("x", "Identity(on)", "com.acme.Swirl(s)"),
        LOOP.replace("y, all", "y") % ("x", "Identity(on)", "Neg(s)"),
    ],
    ids=["another rank", "another type", "a custom operator", "another number of outputs"],
)
def test_a_body_that_does_not_fit_tells_nothing_and_changes_nothing(text: str) -> None:
    model = parse(LOOP % ("x", "Identity(on)", "Neg(s)"))
    other = onnx.parser.parse_graph(text)
    (node,) = model.graph.nodes
    (body,) = node.bodies()
    wrong = next(inner for inner in other.node[0].attribute[0].g.node if inner.output[0] == "t")
    (right,) = (inner for inner in body.nodes if inner.outputs[0].name == "t")
    right.op_type, right.domain = wrong.op_type, wrong.domain
    right.attributes.update((item.name, item.i) for item in wrong.attribute)
    if len(other.node[0].output) == 1:
        body.outputs = body.outputs[:2]
    values = list(all_values(model.graph))
    for value in values:
        if value not in model.graph.inputs:
            value.type = TensorType(DType.FLOAT32, (7, 7))
    before = [value.type for value in values]
    assert not infer_graph_types(model.graph, leaves_lengths=True)
    assert [value.type for value in values] == before


@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan"])
def test_a_node_without_its_bodies_tells_nothing(op_type: str) -> None:
    flag, count = (Value(t.label, TensorType(t, ())) for t in (DType.BOOL, DType.INT64))
    graph = Graph("g", [flag, count])
    inputs = [count, flag] if op_type == "Loop" else [flag, flag]
    graph.append(Node(op_type, inputs, [Value("y")], name="n"))
    assert not infer_graph_types(graph, leaves_lengths=True)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        (TensorType(DType.INT64, (1,)), "int64[1]"),
        (TensorType(DType.INT16, (7,)), "int64[1]"),
        (TensorType(DType.INT64, (1, 1)), "int64[]"),
        (TensorType(DType.FLOAT32), "int64[]"),
        (None, "int64[]"),
    ],
)
def test_a_counter_is_one_number_or_a_list_of_one_as_its_body_declares_it(
    declared: TensorType | None, found: str
) -> None:
    model = parse(LOOP % ("x", "Identity(on)", "Relu(s)"))
    (body,) = next(iter(model.graph.nodes)).bodies()
    body.inputs[0].type = declared
    assert infer_graph_types(model.graph)
    assert str(body.inputs[0].type) == found


BRANCHED = """y = If (x) <then_branch = a () => (float p) { p = Abs(x) },
    else_branch = b () => (float q) { q = Neg(x) }>"""
LOOPED = """y = Loop (%s, %s, x) <body = b (int64 i, bool on, float s) => (bool d, float t)
    { d = Not(on) t = Neg(s) }>"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BRANCHED, "condition is float32"),
        (LOOPED % ("x", "c"), "number of turns is float32"),
        (LOOPED % ("n", "x"), "condition is float32"),
    ],
)
def test_what_controls_bodies_has_the_type_that_onnx_says(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        parse(f"g (float x, int64 n, bool c) => (float y) {{ {text} }}")
