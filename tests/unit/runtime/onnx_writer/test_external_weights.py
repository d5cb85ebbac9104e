import numpy as np
import onnx

from aioinfer.runtime.graph import DType, Graph, Model, Node, TensorType, Value
from aioinfer.runtime.onnx_writer import write_model

EXTERNAL = onnx.TensorProto.EXTERNAL


def constant(name: str, array: np.ndarray) -> Value:
    return Value(name, TensorType(DType.of(array.dtype), array.shape), array)


def model_with(*arrays: np.ndarray) -> Model:
    values = [constant(f"c{index}", array) for index, array in enumerate(arrays)]
    graph = Graph("g")
    for index, value in enumerate(values):
        graph.add_initializer(value)
        output = Value(f"y{index}", value.type)
        graph.append(Node("Identity", [value], [output], name=f"n{index}"))
    graph.outputs = [value for node in graph.nodes for value in node.outputs]
    return Model(graph, {"": 26})


def test_only_large_numeric_initializers_are_external_and_keep_their_names() -> None:
    large, small = np.ones(1000, np.float32), np.ones(3, np.float32)
    texts = np.array(["text"] * 1000, object)
    proto = write_model(model_with(large, small, texts), weights="external")
    locations = {tensor.name: tensor.data_location for tensor in proto.graph.initializer}
    assert locations["c0"] == EXTERNAL
    assert locations["c1"] != EXTERNAL
    assert locations["c2"] != EXTERNAL
    assert list(proto.graph.initializer[0].dims) == [1000]
    assert not proto.graph.initializer[0].raw_data


def test_weights_of_bodies_and_attributes_stay_with_them() -> None:
    large = np.ones(1000, np.float32)
    inner = constant("w", large)
    body = Graph("body")
    body.add_initializer(inner)
    body.outputs = [inner]
    go = Value("go", TensorType(DType.BOOL, ()))
    y = Value("y", inner.type)
    graph = Graph("g", [go])
    graph.append(Node("If", [go], [y], {"then_branch": body, "else_branch": body}, name="if"))
    graph.outputs = [y]
    proto = write_model(Model(graph, {"": 26}), weights="external")
    (held,) = proto.graph.node[0].attribute[0].g.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(held), large)
