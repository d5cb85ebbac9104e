from collections.abc import Callable

import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Graph, Value, check_graph
from unit.runtime.graph.graphs import chain, node, nodes_by_name, weight, with_branches


def input_made_by_a_node(graph: Graph) -> None:
    graph.inputs.append(graph.outputs[0])


def initializer_without_content(graph: Graph) -> None:
    graph.add_initializer(weight()).constant = None


def initializer_under_another_name(graph: Graph) -> None:
    graph.add_initializer(weight()).name = "v"


def initializer_made_by_a_node(graph: Graph) -> None:
    value = graph.outputs[0]
    value.constant = weight().constant
    graph.add_initializer(value)


def node_of_another_graph(graph: Graph) -> None:
    next(graph.nodes).graph = Graph("other")


def nodes_of_one_name(graph: Graph) -> None:
    graph.append(node("Neg", [graph.inputs[0]], "n0", "fresh"))


def values_of_one_name(graph: Graph) -> None:
    graph.append(node("Neg", [graph.inputs[0]], "new", "n0_out"))


def value_defined_twice(graph: Graph) -> None:
    graph.inputs.append(graph.inputs[0])


def output_of_another_producer(graph: Graph) -> None:
    graph.outputs[0].producer = next(graph.nodes)


def output_with_another_index(graph: Graph) -> None:
    graph.outputs[0].output_index = 1


def use_that_no_node_has(graph: Graph) -> None:
    _, second = graph.nodes
    graph.inputs[0].uses[second, 0] = None


def use_of_an_input_that_is_not_there(graph: Graph) -> None:
    graph.inputs[0].uses[next(graph.nodes), 3] = None


def use_that_the_value_does_not_know(graph: Graph) -> None:
    graph.inputs[0].uses.clear()


def use_before_the_definition(graph: Graph) -> None:
    first = next(graph.nodes)
    graph.unlink(first)
    graph.append(first)


def use_of_a_value_of_nobody(graph: Graph) -> None:
    next(graph.nodes).replace_input(0, Value("ghost"))


def output_of_nobody(graph: Graph) -> None:
    graph.outputs = [Value("ghost")]


BROKEN: list[tuple[Callable[[Graph], None], str]] = [
    (input_made_by_a_node, "input 'n1_out' is made by 'n1'"),
    (initializer_without_content, "initializer 'w' is not a named constant"),
    (initializer_under_another_name, "initializer 'w' is not a named constant"),
    (initializer_made_by_a_node, "initializer 'n1_out' is not a named constant"),
    (node_of_another_graph, "node 'n0' believes to be in"),
    (nodes_of_one_name, "two nodes are called 'n0'"),
    (values_of_one_name, "two values are called 'n0_out'"),
    (value_defined_twice, "value 'x' is defined twice"),
    (output_of_another_producer, "output 'n1_out' of node 'n1' names another producer"),
    (output_with_another_index, "output 'n1_out' of node 'n1' names another producer"),
    (use_that_no_node_has, "value 'x' lists a use that node 'n1' does not have"),
    (use_of_an_input_that_is_not_there, "value 'x' lists a use that node 'n0' does not have"),
    (use_that_the_value_does_not_know, "node 'n0' uses 'x', which does not know of it"),
    (use_before_the_definition, "node 'n1' uses 'n0_out' before it is defined; sort"),
    (use_of_a_value_of_nobody, "node 'n0' uses 'ghost' before it is defined"),
    (output_of_nobody, "output 'ghost' is not defined"),
]


@pytest.mark.parametrize(
    ("breaks", "message"), BROKEN, ids=lambda item: getattr(item, "__name__", item)
)
def test_a_broken_invariant_is_named(breaks: Callable[[Graph], None], message: str) -> None:
    graph = chain("Relu", "Neg")
    check_graph(graph)
    breaks(graph)
    with pytest.raises(GraphError, match=f"graph 'chain': {message}"):
        check_graph(graph)


def test_bodies_are_checked_and_may_use_what_is_defined_around_them() -> None:
    graph = with_branches()
    check_graph(graph)
    nodes_by_name(graph)["neg"].replace_input(0, Value("ghost"))
    with pytest.raises(GraphError, match="graph 'no': node 'neg' uses 'ghost'"):
        check_graph(graph)


def test_a_body_may_not_use_what_is_defined_after_it() -> None:
    graph = with_branches()
    relu, _ = graph.nodes
    graph.unlink(relu)
    graph.append(relu)
    with pytest.raises(GraphError, match="graph 'yes': node 'add' uses 'relu_out' before"):
        check_graph(graph)


def test_a_name_may_be_used_again_inside_a_body() -> None:
    graph = with_branches()
    nodes_by_name(graph)["add"].outputs[0].name = "relu_out"
    check_graph(graph)
