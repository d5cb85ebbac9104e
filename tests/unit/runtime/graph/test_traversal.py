import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Graph, Value, check_graph, constant_values, sort_topologically
from unit.runtime.graph.graphs import chain, node, nodes_by_name, with_branches


def names(graph: Graph) -> list[str]:
    return [item.name for item in graph.nodes]


def shuffle(graph: Graph, order: list[str]) -> None:
    nodes = nodes_by_name(graph)
    for name in order:
        graph.unlink(nodes[name])
        graph.append(nodes[name])


def test_sorting_puts_producers_first() -> None:
    graph = chain("Relu", "Neg", "Abs")
    shuffle(graph, ["n2", "n1", "n0"])
    sort_topologically(graph)
    assert names(graph) == ["n0", "n1", "n2"]
    check_graph(graph)


def test_sorting_leaves_an_order_that_holds_alone() -> None:
    x = Value("x")
    graph = Graph("wide", [x])
    for name in ("b", "a", "c"):
        graph.append(node("Relu", [x], name))
    sort_topologically(graph)
    assert names(graph) == ["b", "a", "c"]


def test_sorting_sees_what_bodies_capture() -> None:
    graph = with_branches()
    shuffle(graph, ["choice", "relu"])
    sort_topologically(graph)
    assert names(graph) == ["relu", "choice"]


def test_a_cycle_is_refused_and_its_nodes_are_named() -> None:
    graph = chain("Relu", "Neg", "Abs")
    first, _, last = graph.nodes
    first.replace_input(0, last.outputs[0])
    with pytest.raises(GraphError, match=r"'chain' has a cycle.*\['n0', 'n1', 'n2'\]"):
        sort_topologically(graph)
    assert names(graph) == ["n0", "n1", "n2"]


def test_constants_are_found_where_bodies_use_them() -> None:
    graph = with_branches()
    assert constant_values(graph) == [graph.initializers["w"]]
    graph.outputs = []
    assert constant_values(chain("Relu")) == []
