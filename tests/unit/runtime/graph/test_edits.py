import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Graph, Node, Value, check_graph
from unit.runtime.graph.graphs import chain, node, nodes_by_name, weight, with_branches


def names(graph: Graph) -> list[str]:
    return [item.name for item in graph.nodes]


def test_a_new_node_is_the_producer_of_its_outputs_and_a_use_of_its_inputs() -> None:
    x = Value("x")
    split = node("Split", [x, None, x], "split", "left", "right")
    assert [(value.producer, value.output_index) for value in split.outputs] == [
        (split, 0),
        (split, 1),
    ]
    assert list(x.uses) == [(split, 0), (split, 2)]
    assert x.consumers == [split]


def test_a_value_has_one_producer() -> None:
    first = node("Relu", [Value("x")], "first")
    with pytest.raises(GraphError, match="'first_out' is made by node 'first' and cannot also"):
        Node("Neg", [], first.outputs, name="second")


def test_replacing_an_input_moves_the_use() -> None:
    graph = chain("Relu", "Neg")
    x, (relu, neg) = graph.inputs[0], graph.nodes
    neg.replace_input(0, x)
    assert list(relu.outputs[0].uses) == []
    assert list(x.uses) == [(relu, 0), (neg, 0)]
    neg.replace_input(0, None)
    assert neg.inputs == (None,)
    assert list(x.uses) == [(relu, 0)]


def test_replacing_all_uses_reaches_bodies_and_graph_outputs() -> None:
    graph = with_branches()
    relu, x = nodes_by_name(graph)["relu"], graph.inputs[0]
    graph.replace_uses(relu.outputs[0], x)
    assert nodes_by_name(graph)["add"].inputs[0] is x
    check_graph(graph)
    plain = chain("Relu", "Neg")
    plain.replace_uses(plain.outputs[0], plain.inputs[0])
    assert plain.outputs == plain.inputs
    assert plain.inputs[0].is_graph_output


def test_replacing_all_uses_reaches_bodies_that_return_the_value_as_it_is() -> None:
    graph = with_branches()
    relu, x = nodes_by_name(graph)["relu"], graph.inputs[0]
    yes = nodes_by_name(graph)["choice"].bodies()[0]
    yes.outputs = relu.outputs
    graph.replace_uses(relu.outputs[0], x)
    assert yes.outputs == [x]
    graph.remove(relu)
    check_graph(graph)


def test_a_node_whose_output_is_used_cannot_be_removed() -> None:
    graph = chain("Relu", "Neg")
    relu, neg = graph.nodes
    with pytest.raises(GraphError, match="'n0_out' is used by 'n1'; replace the uses first"):
        graph.remove(relu)
    with pytest.raises(GraphError, match="'n1_out' is used by \"graph 'chain'\""):
        graph.remove(neg)


def test_a_removed_node_leaves_no_trace() -> None:
    graph = chain("Relu", "Neg")
    relu, neg = graph.nodes
    graph.outputs = relu.outputs
    graph.remove(neg)
    assert names(graph) == ["n0"]
    assert (neg.graph, neg.outputs[0].producer, list(relu.outputs[0].uses)) == (None, None, [])
    check_graph(graph)


def test_removing_a_control_flow_node_releases_what_its_bodies_captured() -> None:
    graph = with_branches()
    relu, choice = graph.nodes
    graph.outputs = [graph.inputs[0]]
    graph.remove(choice)
    graph.remove(relu)
    assert all(not value.uses for value in (*graph.inputs, *graph.initializers.values()))
    check_graph(graph)


def test_nodes_are_inserted_before_a_place() -> None:
    graph = chain("Relu", "Neg")
    relu, neg = graph.nodes
    graph.insert_before(relu, node("Abs", [graph.inputs[0]], "first"))
    graph.insert_before(neg, node("Abs", [relu.outputs[0]], "middle"))
    assert names(graph) == ["first", "n0", "middle", "n1"]
    check_graph(graph)


def test_a_place_or_a_node_of_another_graph_is_refused() -> None:
    graph, other = chain("Relu"), chain("Neg")
    foreign = next(other.nodes)
    with pytest.raises(GraphError, match="'n0' is not in graph 'chain'"):
        graph.insert_before(foreign, node("Abs", [], "new"))
    with pytest.raises(GraphError, match="'n0' is not in graph"):
        graph.unlink(foreign)
    with pytest.raises(GraphError, match="'n0' is already in graph 'chain'"):
        graph.append(foreign)


def test_an_iteration_survives_the_removal_of_the_node_it_stands_on() -> None:
    graph = chain("Relu", "Neg", "Abs")
    graph.outputs = graph.inputs
    for item in reversed(list(graph.nodes)):
        assert item.graph is graph
    seen = []
    for item in graph.nodes:
        seen.append(item.name)
        graph.replace_uses(item.outputs[0], graph.inputs[0])
        graph.remove(item)
    assert (seen, len(graph)) == (["n0", "n1", "n2"], 0)


def test_an_initializer_needs_content_and_a_free_name() -> None:
    graph = chain("Relu")
    graph.add_initializer(weight())
    with pytest.raises(GraphError, match="already has an initializer 'w'"):
        graph.add_initializer(weight())
    with pytest.raises(GraphError, match="'empty' of graph 'chain' has no content"):
        graph.add_initializer(Value("empty"))


def test_graph_outputs_are_counted_by_value() -> None:
    graph = chain("Relu")
    x, y = graph.inputs[0], graph.outputs[0]
    graph.outputs = [x, x]
    assert (x.is_graph_output, y.is_graph_output) == (True, False)
    graph.outputs = [y]
    assert (x.is_graph_output, y.is_graph_output) == (False, True)


def test_captures_are_outer_values_of_bodies_without_direct_inputs() -> None:
    graph = with_branches()
    relu, choice = graph.nodes
    w = graph.initializers["w"]
    assert choice.captures() == [relu.outputs[0], w, graph.inputs[0]]
    assert choice.dependencies() == [graph.inputs[1], *choice.captures()]
    assert relu.captures() == []


def test_a_body_captures_what_bodies_inside_it_use_and_what_it_returns() -> None:
    graph = with_branches()
    x = graph.inputs[0]
    yes = nodes_by_name(graph)["choice"].bodies()[0]
    inner = Graph("inner", outputs=[x])
    yes.append(Node("If", [], [Value("z")], {"then_branch": inner}, name="deep"))
    assert x in yes.captured_values()


def test_affinity_is_metadata() -> None:
    relu = next(chain("Relu").nodes)
    relu.affinity = "CUDA"
    assert relu.metadata == {"affinity": "CUDA"}
    relu.affinity = None
    assert (relu.affinity, relu.metadata) == (None, {})


def test_nodes_are_found_by_operator_and_domain() -> None:
    graph = chain("Relu", "Neg", "Relu")
    graph.append(Node("Relu", [graph.inputs[0]], [], name="other", domain="com.acme"))
    assert [item.name for item in graph.nodes_of("Relu")] == ["n0", "n2"]
    assert [item.op for item in graph.nodes_of("Relu", "com.acme")] == ["com.acme::Relu"]
