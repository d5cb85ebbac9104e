"""Models that are taken apart, and models that are not."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core, Model
from aioinfer.runtime.graph import Graph, Node


def _proto() -> bytes:
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [weights],
    )
    opset = helper.make_opsetid("", 21)
    content: bytes = helper.make_model(
        graph, opset_imports=[opset], ir_version=10
    ).SerializeToString()
    return content


def test_a_disposed_model_frees_its_weights_without_the_collector(
    core: Core, no_collector: None
) -> None:
    model = core.read_model(_proto())
    weights = weakref.ref(model.graph.initializers["w"].constant)
    copied = model.copy()
    model.dispose()
    assert weights() is not None  # the copy shares the bytes
    copied.dispose()
    assert weights() is None


def test_a_model_of_the_users_is_left_alone(core: Core) -> None:
    model = core.read_model(_proto())
    before = str(model)
    for _ in range(2):
        core.load_network(model, "REFERENCE").close()
    assert not model.is_disposable
    assert str(model) == before
    assert model.graph.initializers["w"].constant is not None


def test_auto_may_try_the_next_device_with_a_model_it_was_given(core: Core) -> None:
    with core.load_network(_proto(), "AUTO:REFERENCE") as network:
        result = network.create_infer_request().infer_sync(np.ones((1, 64), np.float32))
    np.testing.assert_allclose(result["y"], 64)
    assert isinstance(core.read_model(_proto()), Model)


def test_nodes_are_found_by_name_in_one_walk_until_the_graph_changes(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = core.read_model(_proto())
    walks = 0
    nodes_of = Graph.nodes.fget
    assert nodes_of is not None

    def counted(graph: Graph) -> Iterator[Node]:
        nonlocal walks
        walks += 1
        return nodes_of(graph)

    product, relu = list(model.graph.nodes)
    monkeypatch.setattr(Graph, "nodes", property(counted))
    for _ in range(3):
        assert (model.node(product.name), model.node(relu.name)) == (product, relu)
    assert walks == 1
    product.name = "renamed"
    assert model.node("renamed") is product
    relu.name = "renamed"
    assert model.node("renamed") is product
    for gone in ("n1", "nothing"):
        with pytest.raises(KeyError, match=f"has no node '{gone}'"):
            model.node(gone)
    model.graph.outputs = [product.outputs[0]]
    model.graph.remove(relu)
    model.graph.outputs = []
    model.graph.remove(product)
    with pytest.raises(KeyError, match="has no node 'renamed'"):
        model.node("renamed")
