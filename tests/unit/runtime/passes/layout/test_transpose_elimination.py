import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioinfer.runtime.graph import DType, Graph, Model, Node, TensorType, Value, check_graph
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.layout.transpose_elimination import TransposeElimination
from exhaustive import drawn
from unit.runtime.passes.transformer_models import assert_same, fused, lines, ops, typed

HEAD = """g (float[2,3,4] x, float[4,2,3] z) => (float[2,3,4] y) <
    float one = {1}, float[4] row = {1, 2, 3, 4}, float[3,1] column = {1, 2, 3},
    float[2,1,1] deep = {1, -1}
> {"""
THERE = "t = Transpose<perm=[2,0,1]>(x)"
BACK = "Transpose<perm=[1,2,0]>"


def model_of(nodes: str) -> Model:
    return typed(f"{HEAD} {nodes} }}")


def fuse(model: Model) -> Model:
    found = fused(model, TransposeElimination())
    check_graph(found.graph)
    return found


def test_two_that_undo_each_other_go() -> None:
    model = model_of(f"{THERE} b = {BACK}(t) y = Relu(b)")
    found = fuse(model)
    assert lines(model) == [
        "t = Transpose(x) {perm=[2, 0, 1]}",
        "b = Transpose(t) {perm=[1, 2, 0]}",
        "y = Relu(b)",
    ]
    assert lines(found) == ["y = Relu(x)"]


def test_two_others_become_one() -> None:
    model = typed(
        """g (float[2,3,4] x) => (float[4,3,2] y) {
            t = Transpose<perm=[2,0,1]>(x) b = Transpose<perm=[0,2,1]>(t) y = Relu(b)
        }"""
    )
    found = fuse(model)
    assert lines(found) == ["b = Transpose(x) {perm=[2, 1, 0]}", "y = Relu(b)"]
    assert_same(model, found)


def test_the_first_stays_if_others_use_it() -> None:
    model = model_of(f"{THERE} n = Relu(t) m = ReduceSum(n) b = {BACK}(t) y = Mul(b, m)")
    found = fuse(model)
    assert ops(found) == {"Transpose": 1, "Relu": 1, "ReduceSum": 1, "Mul": 1}
    assert_same(model, found)


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        (f"{THERE} y = {BACK}(t)", ["y = Transpose(x) {perm=[0, 1, 2]}"]),
        (f"n = Neg(x) {THERE.replace('(x)', '(n)')} y = {BACK}(t)", ["y = Neg(x)"]),
        (f"{THERE} a = Relu(t) y = {BACK}(a)", ["y = Relu(x)"]),
    ],
)
def test_an_output_keeps_its_name(nodes: str, left: list[str]) -> None:
    model = model_of(nodes)
    found = fuse(model)
    assert lines(found) == left
    assert_same(model, found)


def test_elementwise_operators_work_on_what_was_there_before() -> None:
    nodes = f"""{THERE} a = Relu(t) b = Mul(a, column) c = Add(row3, b) d = Clip(c, one)
        e = {BACK}(d) y = Neg(e)"""
    text = f"{HEAD} {nodes} }}".replace("float one", "float[3] row3 = {5, 6, 7}, float one")
    model = typed(text.replace("[3,1] column", "[2,1] column").replace("{1, 2, 3},", "{1, 2},"))
    found = fuse(model)
    assert lines(found) == [
        "a_before = Relu(x)",
        "b_before = Mul(a_before, column_before)",
        "c_before = Add(row3_before, b_before)",
        "d_before = Clip(c_before, one)",
        "y = Neg(d_before)",
    ]
    assert [node.fused_from for node in found.graph.nodes][:2] == [("Relu_0",), ("Mul_0",)]
    assert_same(model, found)


def test_two_transposed_operands_need_only_one_undone() -> None:
    model = typed(
        """g (float[2,3,4] x, float[2,1,4] w) => (float[2,3,4] y) {
            t = Transpose<perm=[2,0,1]>(x) u = Transpose<perm=[2,0,1]>(w) a = Add(t, u)
            b = Transpose<perm=[1,2,0]>(a) y = Neg(b)
        }"""
    )
    found = fuse(model)
    assert ops(found) == {"Add": 1, "Neg": 1}
    assert_same(model, found)


def test_one_is_added_where_two_go() -> None:
    model = model_of(f"{THERE} a = Add(t, z) s = Softmax<axis=0>(z) b = {BACK}(a) y = Neg(b)")
    found = fuse(model)
    assert ops(found) == {"Transpose": 1, "Add": 1, "Neg": 1}
    assert lines(found)[0] == "z_before = Transpose(z) {perm=[1, 2, 0]}"
    assert_same(model, found)


def test_a_value_that_others_need_is_transposed_for_them() -> None:
    model = typed(
        """g (float[2,3,4] x, float[2,3,4] w) => (float[2,3,4] y, float[4,2,3] a) {
            t = Transpose<perm=[2,0,1]>(x) u = Transpose<perm=[2,0,1]>(w) a = Add(t, u)
            b = Transpose<perm=[1,2,0]>(a) y = Neg(b)
        }"""
    )
    found = fuse(model)
    assert ops(found) == {"Transpose": 1, "Add": 1, "Neg": 1}
    assert_same(model, found)


def test_a_residual_network_loses_all_in_its_middle() -> None:
    layer = """
        {x}c = Transpose<perm=[0,2,1]>({x}) {x}s = Softmax<axis=1>({x}c)
        {x}b = Transpose<perm=[0,2,1]>({x}s) {x}a = Add({x}b, {x}) {y} = Relu({x}a)"""
    text = "g (float[2,3,4] x) => (float[2,4,3] o) { i = Relu(x)"
    text += layer.format(x="i", y="j") + layer.format(x="j", y="k") + layer.format(x="k", y="l")
    model = typed(text + "o = Transpose<perm=[0,2,1]>(l) }")
    found = fuse(model)
    assert ops(model)["Transpose"] == 7
    assert ops(found)["Transpose"] == 1
    assert_same(model, found)


@pytest.mark.parametrize(
    "nodes",
    [
        f"{THERE} a = Softmax<axis=0>(t) b = {BACK}(a) y = Neg(b)",
        f"{THERE} a = Add(t, z) b = Add(a, z) c = Add(t, b) y = Reshape(c, shape)",
        "y = Transpose<perm=[0,1,2]>(x)",
    ],
)
def test_nothing_to_gain(nodes: str) -> None:
    text = f"{HEAD} {nodes} }}".replace("float one", "int64[3] shape = {2, 3, 4}, float one")
    model = typed(text)
    before = ops(model)
    assert ops(fuse(model)) == before


def test_nodes_for_different_devices_stay_apart() -> None:
    model = model_of(f"{THERE} a = Relu(t) b = {BACK}(a) y = Neg(b)")
    model.node("Relu_0").affinity = "CPU.1"
    assert ops(fuse(model)) == ops(model)


def test_only_ranks_need_to_be_known() -> None:
    text = f"{HEAD} {THERE} a = Mul(t, one) b = {BACK}(a) y = Neg(b) }}"
    model = typed(text.replace("float[2,3,4]", "float[A,B,C]").replace("float[4,2,3]", "float[D]"))
    assert ops(fuse(model)) == {"Mul": 1, "Neg": 1}


def test_a_long_chain_is_one_patch() -> None:
    chain = " ".join(f"v{index + 1} = Neg(v{index})" for index in range(300))
    model = model_of(f"v0 = Transpose<perm=[2,0,1]>(x) {chain} b = {BACK}(v300) y = Neg(b)")
    report = run_passes(model, [TransposeElimination()])
    assert report.patch_count == 1
    assert ops(model) == {"Neg": 301}


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Cubes through Transposes, sums, constants and an operator that cannot be turned."""
    kind = TensorType(DType.FLOAT32, (2, 2, 2))
    graph = Graph("random", [Value("x", kind)])
    content = np.arange(4, dtype=np.float32).reshape(2, 2)
    constant = graph.add_initializer(Value("c", TensorType(DType.FLOAT32, content.shape), content))
    values = list(graph.inputs)

    def append(op: str, inputs: list[Value], attributes: dict[str, object]) -> None:
        name = f"n{len(graph)}"
        made = Value(f"v{name}")
        graph.append(Node(op, inputs, [made], attributes, name=name))
        values.append(made)

    orders = st.sampled_from([[2, 0, 1], [1, 2, 0], [0, 2, 1], [1, 0, 2]])
    for _ in range(draw(st.integers(2, 14))):
        recent = st.sampled_from(values[-4:])
        op = draw(st.sampled_from(["Transpose", "Transpose", "Add", "Tanh", "Sub", "Softmax"]))
        if op == "Transpose":
            append(op, [draw(recent)], {"perm": draw(orders)})
        elif op == "Sub":
            append(op, [constant, draw(recent)], {})
        elif op == "Add":
            append(op, [draw(recent), draw(recent)], {})
        else:
            append(op, [draw(recent)], {"axis": 1} if op == "Softmax" else {})
    made = values[1:]
    graph.outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2, unique=True))
    model = Model(graph, {"": 26})
    infer_types(model)
    return model


@pytest.mark.exhaustive
@settings(max_examples=drawn(300))
@given(models())
def test_random_graphs_compute_the_same_with_no_more_transposes(model: Model) -> None:
    found = fuse(model)
    assert ops(found)["Transpose"] <= ops(model)["Transpose"]
    assert_same(model, found)
