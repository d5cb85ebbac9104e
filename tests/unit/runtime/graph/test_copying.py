import numpy as np

from aioinfer.runtime.graph import Graph, Model, Value, check_graph, copy_graph, graph_text
from unit.runtime.graph.graphs import chain, nodes_by_name, with_branches


def test_a_copy_reads_the_same_and_holds() -> None:
    graph = with_branches()
    copied = copy_graph(graph)
    check_graph(copied)
    assert graph_text(copied) == graph_text(graph)


def test_a_copy_shares_the_bytes_of_constants() -> None:
    graph = with_branches()
    mine, yours = (g.initializers["w"].constant for g in (graph, copy_graph(graph)))
    assert mine is not None
    assert yours is not None
    assert np.shares_memory(mine, yours)


def test_no_edit_of_a_copy_reaches_the_original() -> None:
    graph = with_branches()
    before = graph_text(graph)
    copied = copy_graph(graph)
    nodes = nodes_by_name(copied)
    nodes["relu"].affinity = "CUDA"
    nodes["neg"].attributes["alpha"] = 1.0
    copied.replace_uses(nodes["relu"].outputs[0], copied.inputs[0])
    copied.remove(nodes["relu"])
    copied.inputs[0].name = "renamed"
    copied.outputs = copied.inputs
    check_graph(copied)
    check_graph(graph)
    assert graph_text(graph) == before


def test_bodies_of_a_copy_capture_values_of_the_copy() -> None:
    graph = with_branches()
    copied = copy_graph(graph)
    add = nodes_by_name(copied)["add"]
    assert add.inputs[0] is nodes_by_name(copied)["relu"].outputs[0]
    assert add.inputs[1] is copied.initializers["w"]


def test_a_copied_body_captures_what_it_did_or_what_it_is_told() -> None:
    body = nodes_by_name(with_branches())["choice"].bodies()[1]
    x, other = body.captured_values()[0], Value("other")
    assert copy_graph(body).captured_values() == [x]
    assert copy_graph(body, {x: other}).captured_values() == [other]


def test_a_copied_model_keeps_what_the_file_said() -> None:
    model = Model(chain("Relu"), {"": 26}, ir_version=9, producer="pen", metadata={"author": "me"})
    copied = model.copy()
    copied.metadata["author"] = "you"
    copied.opsets[""] = 1
    assert (model.metadata, model.opsets) == ({"author": "me"}, {"": 26})
    assert (copied.ir_version, copied.producer, copied.name) == (9, "pen", "chain")
    assert copied.with_graph(Graph("other")).producer == "pen"
