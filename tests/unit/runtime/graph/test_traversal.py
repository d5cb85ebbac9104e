from aioinfer.runtime.graph import constant_values
from unit.runtime.graph.graphs import chain, with_branches


def test_constants_are_found_where_bodies_use_them() -> None:
    graph = with_branches()
    assert constant_values(graph) == [graph.initializers["w"]]
    graph.outputs = []
    assert constant_values(chain("Relu")) == []
