import pytest

from aioinfer.runtime.passes import CommonSubexpressions, run_passes
from onnx_text import parse
from unit.runtime.passes.small_models import node_lines


def merge(text: str) -> list[str]:
    model = parse(text)
    run_passes(model, [CommonSubexpressions()])
    return node_lines(model)


def test_equal_expressions_are_computed_once_and_stand_for_both() -> None:
    lines = merge(
        """g (float[2] x) => (float[2] y) {
            a = Neg(x) b = Exp(a) c = Neg(x) d = Exp(c) y = Add(b, d)
        }"""
    )
    assert lines == [
        "a = Neg(x)  # Neg_0 Neg_1",
        "b = Exp(a)  # Exp_0 Exp_1",
        "y = Add(b, b)  # Add_0",
    ]


def test_a_merged_node_is_not_a_removed_one() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(x) y = Add(a, b) }")
    assert run_passes(model, [CommonSubexpressions()]).removed_names == ()


class Untouched(list):
    """A long attribute, which is too dear to be looked at."""

    def __iter__(self):
        raise AssertionError("the content of the attribute was looked at")


def test_attributes_are_looked_at_of_nodes_alone_that_agree_in_all_else() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x) y = Exp(a) }")
    for node in model.graph.nodes:
        node.attributes["numbers"] = Untouched([1, 2, 3])
    run_passes(model, [CommonSubexpressions()])
    assert len(model.graph) == 2


def test_three_nodes_of_which_two_have_equal_attributes() -> None:
    lines = merge(
        """g (float[2, 2] x) => (float[2, 2] y) {
            a = Softmax<axis=0>(x) b = Softmax<axis=1>(x) c = Softmax<axis=0>(x)
            d = Softmax<axis=1>(x) e = Add(a, b) f = Add(c, d) y = Mul(e, f)
        }"""
    )
    assert [line.partition("  #")[2] for line in lines] == [
        " Softmax_0 Softmax_2",
        " Softmax_1 Softmax_3",
        " Add_0 Add_1",
        " Mul_0",
    ]


def test_constants_are_compared_by_content() -> None:
    lines = merge(
        """g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {1, 2}> {
            a = Add(x, v) b = Add(x, w) y = Mul(a, b)
        }"""
    )
    assert lines == ["a = Add(x, v)  # Add_0 Add_1", "y = Mul(a, a)  # Mul_0"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Softmax<axis=0>(x)", "Softmax<axis=1>(x)"),
        ("Neg(x)", "Abs(x)"),
        ("Neg(x)", "Neg(z)"),
        ("Add(x, v)", "Add(x, w)"),
        ("Add(x, plus)", "Add(x, minus)"),
        ("Bernoulli(x)", "Bernoulli(x)"),
        ("RandomNormalLike<seed=1.0>(x)", "RandomNormalLike<seed=1.0>(x)"),
        ("Dropout(x, half, true)", "Dropout(x, half, true)"),
        ("com.acme.Swirl(x)", "com.acme.Swirl(x)"),
    ],
)
def test_what_is_not_surely_equal_is_not_merged(first: str, second: str) -> None:
    lines = merge(
        f"""g (float[2,2] x, float[2,2] z) => (float[2,2] y) <
            float[2] v = {{1, 2}}, float[2] w = {{1, 3}}, float[1] plus = {{0.0}},
            float[1] minus = {{-0.0}}, float half = {{0.5}}, bool true = {{1}}
        > {{ a = {first} b = {second} y = Add(a, b) }}"""
    )
    assert len(lines) == 3


def test_array_attributes_are_compared_by_content() -> None:
    text = """g (int64[1] n) => (float[M] y) {{
        a = ConstantOfShape<value = float[1] {{1}}>(n)
        b = ConstantOfShape<value = float[1] {{{value}}}>(n)
        y = Add(a, b)
    }}"""
    assert len(merge(text.format(value=1))) == 2
    assert len(merge(text.format(value=2))) == 3


def test_nodes_of_different_affinity_are_not_merged_and_equal_ones_keep_theirs() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) {
            a = Neg(x) b = Neg(x) c = Neg(x) d = Add(a, b) y = Add(c, d)
        }"""
    )
    for name, device in {"Neg_0": "MOCK.0", "Neg_1": "MOCK.1", "Neg_2": "MOCK.1"}.items():
        model.node(name).affinity = device
    run_passes(model, [CommonSubexpressions()])
    affinities = {node.fused_from: node.affinity for node in model.graph.nodes_of("Neg")}
    assert affinities == {("Neg_0",): "MOCK.0", ("Neg_1", "Neg_2"): "MOCK.1"}


def test_the_later_node_hands_its_public_name_to_the_earlier() -> None:
    lines = merge("g (float[2] x) => (float[2] y) { a = Neg(x) b = Exp(a) y = Neg(x) }")
    assert lines == ["y = Neg(x)  # Neg_0 Neg_1", "b = Exp(y)  # Exp_0"]


def test_two_outputs_of_the_graph_are_not_merged() -> None:
    lines = merge("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Neg(x) }")
    assert len(lines) == 2


def test_bodies_are_neither_compared_nor_mixed() -> None:
    branch = """If (c) <
        then_branch = {t} () => (float[2] {p}) {{ {p} = Neg(x) }},
        else_branch = {e} () => (float[2] {q}) {{ {q} = Exp(x) }}
    >"""
    first = branch.format(t="t1", p="p1", e="e1", q="q1")
    second = branch.format(t="t2", p="p2", e="e2", q="q2")
    lines = merge(
        f"g (bool c, float[2] x) => (float[2] y) {{ a = {first} b = {second} y = Add(a, b) }}"
    )
    assert len(lines) == 3
