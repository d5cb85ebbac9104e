import numpy as np
import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Node, Value, check_graph
from aioinfer.runtime.passes import GraphPatch
from onnx_text import parse
from unit.runtime.passes.small_models import constants, node_lines, value_of

CHAIN = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) y = Abs(b) }"


def test_a_replacement_inherits_names_and_place_of_what_it_replaces() -> None:
    model = parse(CHAIN)
    relu, neg = model.node("Relu_0"), model.node("Neg_0")
    fused = Node("Fused", relu.inputs, [Value("b")], name="Relu_0", domain="com.acme")
    patch = GraphPatch("fuse").add(fused).replace(neg.outputs[0], fused.outputs[0])

    gone = patch.remove(relu).remove(neg).apply(model.graph)

    assert gone == ()
    assert node_lines(model) == [
        "b = com.acme::Fused(x)  # Relu_0 Neg_0",
        "y = Abs(b)  # Abs_0",
    ]
    check_graph(model.graph)


def test_inherited_names_are_joined_in_order_without_duplicates() -> None:
    model = parse(CHAIN)
    relu, neg = model.node("Relu_0"), model.node("Neg_0")
    relu.fused_from, neg.fused_from = ("first", "shared"), ("shared", "last")
    fused = Node("Fused", relu.inputs, [Value("b")], name="f")
    patch = GraphPatch("fuse").add(fused).replace(neg.outputs[0], fused.outputs[0])
    patch.remove(relu).remove(neg).apply(model.graph)
    assert fused.fused_from == ("first", "shared", "last")


def test_each_new_node_may_stand_for_some_of_the_removed_ones() -> None:
    model = parse(CHAIN)
    relu, neg = model.node("Relu_0"), model.node("Neg_0")
    first = Node("First", relu.inputs, [Value("a")], name="first")
    second = Node("Second", first.outputs, [Value("b")], name="second")
    patch = GraphPatch("swap").add(first, stands_for=[relu]).add(second, stands_for=[])
    gone = (
        patch.replace(neg.outputs[0], second.outputs[0]).remove(relu).remove(neg).apply(model.graph)
    )
    assert (first.fused_from, second.fused_from, gone) == (("Relu_0",), (), ("Neg_0",))


def test_a_node_removed_without_replacement_is_reported() -> None:
    model = parse(CHAIN)
    neg = model.node("Neg_0")
    patch = GraphPatch("skip").replace(neg.outputs[0], neg.inputs[0]).remove(neg)
    assert patch.apply(model.graph) == ("Neg_0",)
    assert node_lines(model) == ["a = Relu(x)  # Relu_0", "y = Abs(a)  # Abs_0"]


def test_what_replaces_an_output_of_the_graph_takes_over_its_name() -> None:
    model = parse(CHAIN)
    last = model.node("Abs_0")
    GraphPatch("skip").replace(last.outputs[0], last.inputs[0]).remove(last).apply(model.graph)
    assert node_lines(model) == ["a = Relu(x)  # Relu_0", "y = Neg(a)  # Neg_0"]
    assert [value.name for value in model.outputs] == ["y"]
    check_graph(model.graph)


def test_a_wrapped_output_hands_its_name_to_the_wrapper() -> None:
    model = parse(CHAIN)
    old = model.node("Abs_0").outputs[0]
    wrapper = Node("Exp", [old], [Value("wrapped", old.type)], name="Exp_0")
    GraphPatch("wrap").add(wrapper).replace(old, wrapper.outputs[0]).apply(model.graph)
    assert node_lines(model)[-2:] == ["y_1 = Abs(b)  # Abs_0", "y = Exp(y_1)  # -"]
    check_graph(model.graph)


def test_a_constant_takes_the_place_of_an_output() -> None:
    model = parse(CHAIN)
    last = model.node("Abs_0")
    content = np.array([1, 2], np.float32)
    GraphPatch("fold").set_constant(last.outputs[0], content).remove(last).apply(model.graph)
    assert constants(model) == {"y": [1.0, 2.0]}
    assert model.outputs[0].constant is content
    check_graph(model.graph)


def test_taken_names_get_a_number() -> None:
    model = parse(CHAIN)
    neg = model.node("Neg_0")
    new = Node("Sqrt", neg.inputs, [Value("b")], name="Relu_0")
    GraphPatch("insert").add(new, before=neg).apply(model.graph)
    constant = Value("a", constant=np.zeros(1, np.float32))
    GraphPatch("constant").add_constant(constant).apply(model.graph)
    assert node_lines(model)[1] == "b_1 = Sqrt(a)  # -"
    assert (new.name, constant.name) == ("Relu_0_1", "a_1")
    check_graph(model.graph)


def test_better_known_types_survive_a_replacement() -> None:
    model = parse("g (float[N] x) => (float[N] y) { a = Relu(x) b = Identity(a) y = Abs(b) }")
    identity = model.node("Identity_0")
    known = identity.outputs[0].type
    identity.inputs[0].type = None
    GraphPatch("skip").replace(identity.outputs[0], identity.inputs[0]).remove(identity).apply(
        model.graph
    )
    assert value_of(model, "a").type == known


def test_a_new_node_inherits_the_affinity() -> None:
    model = parse(CHAIN)
    relu = model.node("Relu_0")
    relu.affinity = "MOCK.1"
    new = Node("Elu", relu.inputs, [Value("a")], name="new")
    GraphPatch("swap").add(new).replace(relu.outputs[0], new.outputs[0]).remove(relu).apply(
        model.graph
    )
    assert new.affinity == "MOCK.1"


def _fuse_over_affinities(model) -> GraphPatch:
    relu, neg = model.node("Relu_0"), model.node("Neg_0")
    relu.affinity = "MOCK.0"
    new = Node("Fused", relu.inputs, [Value("b")], name="new")
    patch = GraphPatch("fuse").add(new).replace(neg.outputs[0], new.outputs[0])
    return patch.remove(relu).remove(neg)


def _merge_over_affinities(model) -> GraphPatch:
    relu, neg = model.node("Relu_0"), model.node("Neg_0")
    neg.affinity = "MOCK.0"
    return GraphPatch("merge").merge(neg, relu)


def _remove_what_is_used(model) -> GraphPatch:
    return GraphPatch("x").remove(model.node("Relu_0"))


def _remove_an_output(model) -> GraphPatch:
    return GraphPatch("x").remove(model.node("Abs_0"))


def _replace_an_output_by_an_input(model) -> GraphPatch:
    last = model.node("Abs_0")
    return GraphPatch("x").replace(last.outputs[0], model.inputs[0]).remove(last)


def _use_what_is_removed(model) -> GraphPatch:
    relu = model.node("Relu_0")
    new = Node("Elu", relu.outputs, [Value("n")], name="new")
    return GraphPatch("x").add(new).replace(relu.outputs[0], new.outputs[0]).remove(relu)


def _replace_by_a_stranger(model) -> GraphPatch:
    stranger = parse(CHAIN).inputs[0]
    return GraphPatch("x").replace(model.node("Relu_0").outputs[0], stranger)


def _remove_a_stranger(model) -> GraphPatch:
    return GraphPatch("x").remove(parse(CHAIN).node("Abs_0"))


def _drop_a_used_constant(model) -> GraphPatch:
    constant = Value("c", constant=np.zeros(2, np.float32))
    model.graph.add_initializer(constant)
    model.node("Neg_0").replace_input(0, constant)
    return GraphPatch("x").drop_constant(constant)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_fuse_over_affinities, "different affinity: .*MOCK.0"),
        (_merge_over_affinities, "different affinities and cannot be merged"),
        (_remove_what_is_used, "'a' would go, and node 'Neg_0' uses it"),
        (_remove_an_output, "'y' would go, and a graph returns it"),
        (_replace_an_output_by_an_input, "output 'y' .* would lose its name"),
        (_use_what_is_removed, "new node 'new' uses 'a'"),
        (_replace_by_a_stranger, "cannot replace 'a' by 'x'"),
        (_remove_a_stranger, "'Abs_0' is to be removed and is not in"),
        (_drop_a_used_constant, "'c' would go, and node 'Neg_0' uses it"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused_and_changes_nothing(make, message) -> None:
    model = parse(CHAIN)
    patch = make(model)
    before = node_lines(model)
    with pytest.raises(GraphError, match=message):
        patch.apply(model.graph)
    assert node_lines(model) == before
    check_graph(model.graph)
    uses = [node.name for value in model.inputs for node, _ in value.uses]
    assert uses == ["Relu_0"]


def test_removing_control_flow_reports_the_nodes_inside() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
            d = If (c) <
                then_branch = t () => (float[2] p) { p = Neg(x) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
            y = Abs(x)
        }"""
    )
    branch = model.node("If_0")
    inside = [node.name for body in branch.bodies() for node in body.nodes]
    assert GraphPatch("drop").remove(branch).apply(model.graph) == ("If_0", *inside)
    assert [node.name for node, _ in value_of(model, "x").uses] == ["Abs_0"]


def test_control_flow_may_go_together_with_what_only_its_bodies_use() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
            a = Relu(x)
            d = If (c) <
                then_branch = t () => (float[2] p) { p = Neg(a) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
            y = Abs(x)
        }"""
    )
    patch = GraphPatch("drop").remove(model.node("Relu_0")).remove(model.node("If_0"))
    patch.apply(model.graph)
    assert node_lines(model) == ["y = Abs(x)  # Abs_0"]
    check_graph(model.graph)


def test_a_value_that_a_body_returns_is_replaced_there_too() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
            a = Relu(x)
            b = Identity(a)
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Identity(b) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
        }"""
    )
    body = model.node("If_0").attributes["then_branch"]
    inner, outer = next(body.nodes), model.node("Identity_0")
    body.outputs = [outer.outputs[0]]
    GraphPatch("skip").replace(outer.outputs[0], outer.inputs[0]).remove(outer).apply(model.graph)
    assert [value.name for value in body.outputs] == ["a"]
    assert [value.name for value in inner.inputs if value] == ["a"]
    check_graph(model.graph)
