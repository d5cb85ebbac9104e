import numpy as np
import onnx
import onnx.checker
import onnx.defs
import onnx.numpy_helper
import pytest

from aioinfer.errors import GraphError
from aioinfer.runtime.graph import (
    DType,
    Graph,
    Model,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
)
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_writer import node_to_proto, write_model
from unit.runtime.graph.graphs import chain, nodes_by_name, weight, with_branches
from unit.runtime.onnx_native.same_models import first_difference, same_arrays

NEWEST = {"": onnx.defs.onnx_opset_version()}


def attribute(op_type: str, **attributes: object) -> onnx.AttributeProto:
    return node_to_proto(Node(op_type, [], [], attributes, name="n")).attribute[0]


def test_a_written_model_is_valid_and_reads_the_same() -> None:
    model = Model(with_branches(), NEWEST, ir_version=13, producer="pen", metadata={"a": "b"})
    proto = write_model(model)
    onnx.checker.check_model(proto, full_check=True)
    assert first_difference(model, read_model(proto)) is None


def test_the_ir_version_is_one_that_has_the_opset() -> None:
    assert write_model(Model(chain("Relu"), NEWEST, ir_version=3)).ir_version == 13


def test_origins_and_metadata_are_written() -> None:
    graph = chain("Relu", "Neg")
    relu, neg = graph.nodes
    relu.affinity, neg.fused_from = "CUDA", ("a", "ü")
    again = read_model(write_model(Model(graph, NEWEST)))
    assert again.node("n0").affinity == "CUDA"
    assert again.node("n1").fused_from == ("a", "ü")
    assert again.node("n0").fused_from == ("n0",)


def test_large_weights_can_be_left_out() -> None:
    graph = chain("Relu")
    graph.add_initializer(weight("small"))
    big = np.zeros((300, 2), np.float32)
    graph.add_initializer(Value("big", TensorType(DType.FLOAT32, big.shape), big))
    small, omitted = write_model(Model(graph, NEWEST), weights="omit").graph.initializer
    assert onnx.numpy_helper.to_array(small).tolist() == [0, 1, 2, 3]
    assert (list(omitted.dims), omitted.data_type, omitted.raw_data) == ([300, 2], 1, b"")
    written = write_model(Model(graph, NEWEST)).graph.initializer[1]
    assert same_arrays(onnx.numpy_helper.to_array(written), big)


def test_a_value_of_a_body_that_is_named_like_an_outer_one_is_renamed() -> None:
    graph = with_branches()
    add = nodes_by_name(graph)["add"]
    add.outputs[0].name = "relu_out"
    body = write_model(Model(graph, NEWEST)).graph.node[1].attribute[0].g
    assert list(body.node[0].input) == ["relu_out", "w"]
    assert [*body.node[0].output, body.output[0].name] == ["relu_out_1", "relu_out_1"]


def test_one_node_is_written_with_the_names_of_its_values() -> None:
    x = Value("x")
    proto = node_to_proto(Node("Clip", [x, None, x], [Value("y")], name="clip", domain="com.acme"))
    assert (proto.op_type, proto.name, proto.domain) == ("Clip", "clip", "com.acme")
    assert (list(proto.input), list(proto.output)) == (["x", "", "x"], ["y"])


def test_one_node_is_written_with_its_bodies_and_other_names_for_values() -> None:
    graph = with_branches()
    relu, choice = graph.nodes
    proto = node_to_proto(choice, {relu.outputs[0]: "renamed"})
    body = proto.attribute[0].g
    assert [item.op_type for item in body.node] == ["Add"]
    assert list(body.node[0].input) == ["renamed", "w"]


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (7, "INT"),
        (True, "INT"),
        (np.int32(7), "INT"),
        (0.5, "FLOAT"),
        (np.float32(0.5), "FLOAT"),
        ("text", "STRING"),
        (b"\xff", "STRING"),
        (np.zeros(2, np.int8), "TENSOR"),
        (TensorType(DType.INT4, (2,)), "TYPE_PROTO"),
        (Graph("g"), "GRAPH"),
        ([1, 2], "INTS"),
        ([0.5, 2.0], "FLOATS"),
        (["a", b"\xff"], "STRINGS"),
        ([np.zeros(2), np.ones(1)], "TENSORS"),
        ([SequenceType(None), OptionalType(TensorType(DType.BOOL))], "TYPE_PROTOS"),
        ([Graph("g"), Graph("h")], "GRAPHS"),
        ([], "INTS"),
    ],
)
def test_attributes_have_the_type_of_their_content_and_read_the_same(
    item: object, kind: str
) -> None:
    node = Node("Swirl", [], [Value("y")], {"item": item}, name="n", domain="com.acme")
    proto = node_to_proto(node).attribute[0]
    assert onnx.AttributeProto.AttributeType.Name(proto.type) == kind
    model = Model(Graph("g"), {**NEWEST, "com.acme": 1}, ir_version=13)
    model.graph.append(node)
    again = read_model(write_model(model))
    if not isinstance(item, np.generic | bool):
        assert first_difference(model, again) is None


def test_the_schema_decides_where_the_content_fits_two_types() -> None:
    assert attribute("LeakyRelu", alpha=1).f == 1
    assert attribute("Constant", value_floats=[1, 0.5]).floats == [1, 0.5]
    assert attribute("Constant", value_floats=[1, 2]).floats == [1, 2]
    assert attribute("Constant", value_strings=[]).type == onnx.AttributeProto.STRINGS


@pytest.mark.parametrize("item", [None, object(), [1, "a"], [None], {1: 2}])
def test_content_that_onnx_cannot_hold_is_refused(item: object) -> None:
    with pytest.raises(GraphError, match="attribute 'item' of node 'n' is a"):
        attribute("Swirl", item=item)


def test_strings_are_written_with_every_character() -> None:
    graph = chain("Relu")
    text = np.array(["a\0", "é", ""], object)
    graph.add_initializer(Value("text", TensorType(DType.STRING, (3,)), text))
    again = read_model(write_model(Model(graph, NEWEST)))
    assert same_arrays(again.graph.initializers["text"].constant, text)
