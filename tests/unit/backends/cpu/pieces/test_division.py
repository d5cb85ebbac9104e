"""Which nodes are planned together, and in which order pieces and steps run."""

from __future__ import annotations

from aioinfer.backends.cpu.pieces.division import Piece, divide
from aioinfer.runtime.graph import Graph, Node
from onnx_text import parse


def divided(text: str, *, in_body: bool = False) -> list[list[str]]:
    graph = parse(text).graph
    order = divide(
        graph,
        lambda node: node.op_type in ("NonZero", "Unique"),
        lambda node: node.op_type == "MatMul",
        lambda node: node.op_type == "GatherND",
        in_body=in_body,
    )
    assert_runnable(graph, order)
    return [
        [node.op_type for node in item.nodes] if isinstance(item, Piece) else [f"-{item.op_type}"]
        for item in order
    ]


def assert_runnable(graph: Graph, order: list[Piece | Node]) -> None:
    """Every node stands there once, and behind all that it uses."""
    there = {*graph.inputs, *graph.initializers.values()}
    seen: list[Node] = []
    for item in order:
        nodes = item.nodes if isinstance(item, Piece) else (item,)
        for node in nodes:
            seen.append(node)
            for value in node.dependencies():
                assert value in there or value.is_constant or value.producer in nodes
        there.update(value for node in nodes for value in node.outputs)
    assert len(seen) == len({*seen})
    assert {*seen} == {node for node in graph.nodes if not node.outputs[0].is_constant}


def test_all_before_the_first_step_is_one_piece() -> None:
    text = """g (float[N] x) => (int64[1,M] y, float[N] z) {
        a = Abs(x)
        z = Neg(x)
        y = NonZero(a)
    }"""
    assert divided(text) == [["Abs", "Neg"], ["-NonZero"]]


def test_behind_a_step_only_what_is_slow_and_what_follows_is_planned() -> None:
    text = """g (float[N,4] x, float[4,4] w) => (float[M,4] y, int64[M,2] z) {
        i = NonZero(x)
        z = Transpose(i)
        r = GatherND(x, z)
        s = Neg(r)
        m = MatMul(s, w)
        y = Relu(m)
    }"""
    order = divided(text)
    assert order == [["-NonZero"], ["-Transpose"], ["-GatherND"], ["-Neg"], ["MatMul", "Relu"]]
    light = text.replace("m = MatMul(s, w)", "m = Add(s, w)")
    names = ["NonZero", "Transpose", "GatherND", "Neg", "Add", "Relu"]
    assert divided(light) == [[f"-{name}"] for name in names]


def test_what_a_plan_leaves_to_numpy_is_a_step_behind_what_it_follows() -> None:
    text = """g (float[N,4] x, float[4,4] w, int64[K,1] i) => (float[M,4] y, float[K,4] z) {
        a = MatMul(x, w)
        b = Neg(a)
        r = GatherND(b, i)
        s = Neg(r)
        y = MatMul(s, w)
        z = Exp(r)
    }"""
    whole = [["MatMul", "Neg", "GatherND", "Neg", "MatMul", "Exp"]]
    assert divided(text) == whole
    assert divided(text, in_body=True) == [
        ["MatMul", "Neg"],
        ["-GatherND"],
        ["-Neg"],
        ["-Exp"],
        ["MatMul"],
    ]


def test_a_body_is_planned_only_around_what_is_slow() -> None:
    text = """g (float[4,4] x, float[4,4] w) => (float[4,4] y, float[4,4] z) {
        z = Neg(x)
        m = MatMul(w, w)
        y = Relu(m)
    }"""
    assert divided(text, in_body=True) == [["-Neg"], ["MatMul", "Relu"]]


def test_a_piece_is_left_by_a_step_and_not_entered_again() -> None:
    text = """g (float[N,4] x, float[4,4] w) => (float[M,4] y, float[K] z) {
        a = MatMul(x, w)
        i = NonZero(a)
        b = Neg(a)
        t = Transpose(i)
        r = GatherND(b, t)
        z = Unique(r)
        c = MatMul(b, w)
        y = Add(c, z)
    }"""
    assert divided(text) == [
        ["MatMul", "Neg", "MatMul"],
        ["-NonZero"],
        ["-Transpose"],
        ["-GatherND"],
        ["-Unique"],
        ["-Add"],
    ]


def test_what_a_branch_captures_comes_before_its_node() -> None:
    text = """g (bool c, float[4,4] x) => (float[4,4] y) {
        i = NonZero(x)
        s = Shape(i)
        y = If(c) <
            then_branch = a () => (float[4,4] t) { t = Identity(x) },
            else_branch = b () => (float[4,4] e) { f = Cast<to=1>(s) e = Expand(x, s) }
        >
    }"""
    assert divided(text) == [["-NonZero"], ["-Shape"], ["-If"]]
