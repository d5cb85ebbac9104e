import numpy as np
import onnx.defs
import onnx.parser
import pytest

import aioinfer
from aioinfer.runtime.graph import (
    DType,
    Graph,
    Model,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    ValueType,
)
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from aioinfer.runtime.onnx_writer.types import merge_types
from unit.runtime.graph.graphs import chain, nodes_by_name, with_branches

NEWEST = {"": onnx.defs.onnx_opset_version()}


def f32(*shape: int | str | None) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def without_types(graph: Graph) -> Model:
    for node in nodes_by_name(graph).values():
        for value in node.outputs:
            value.type = None
    return Model(graph, NEWEST)


def test_types_are_found_from_the_inputs_on() -> None:
    model = without_types(chain("Relu", "Shape"))
    infer_types(model)
    assert [str(node.outputs[0].type) for node in model.graph.nodes] == ["float32[4]", "int64[1]"]


def test_types_are_found_in_bodies() -> None:
    model = without_types(with_branches())
    infer_types(model)
    nodes = nodes_by_name(model.graph)
    assert {name: str(node.outputs[0].type) for name, node in nodes.items()} == dict.fromkeys(
        ("relu", "choice", "add", "neg"), "float32[4]"
    )


def test_shapes_that_are_computed_are_followed() -> None:
    model = read_model(
        onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 21]> g (float[batch, 3, 4] x) => (y) {
              s = Shape <end = 1> (x) m = Constant <value_ints = [-1]> ()
              shape = Concat <axis = 0> (s, m) y = Reshape (x, shape) }"""
        )
    )
    model = without_types(model.graph)
    infer_types(model)
    assert str(model.outputs[0].type) == "float32[batch,?]"
    model.inputs[0].type = f32(2, 3, 4)
    infer_types(model)
    assert str(model.outputs[0].type) == "float32[2,12]"


def test_large_constants_count_with_their_shape() -> None:
    graph = chain("Relu")
    big = np.zeros((4, 300), np.float32)
    w = graph.add_initializer(Value("w", f32(4, 300), big))
    node = next(graph.nodes)
    node.op_type = "MatMul"
    node.replace_input(0, w)
    graph.inputs[0].type = f32(300, "n")
    graph.append(type(node)("MatMul", [w, graph.inputs[0]], [Value("y")], name="product"))
    model = without_types(graph)
    infer_types(model)
    assert nodes_by_name(graph)["product"].outputs[0].type == f32(4, "n")


def test_what_inference_cannot_tell_stays_as_it_was() -> None:
    graph = chain("Relu", "Swirl")
    model = without_types(graph)
    graph.outputs[0].type = f32("n")
    infer_types(model)
    assert graph.outputs[0].type == f32("n")


def test_a_graph_that_onnx_cannot_infer_keeps_its_types() -> None:
    graph = chain("Relu", "MatMul")
    infer_types(Model(graph, NEWEST))
    infer_types(Model(graph, {}))
    assert graph.outputs[0].type == f32(4)


@pytest.mark.parametrize(
    ("known", "found", "merged"),
    [
        (None, f32(2), f32(2)),
        (f32(2), None, f32(2)),
        (f32("n", None, 3), f32(2, "m", "k"), f32(2, "m", 3)),
        (f32("n"), f32("m"), f32("n")),
        (f32(2), f32(3), f32(2)),
        (f32(2), f32(2, 3), f32(2)),
        (TensorType(DType.FLOAT32), f32(2), f32(2)),
        (f32(2), TensorType(DType.FLOAT32), f32(2)),
        (f32("n"), TensorType(DType.INT64, (2,)), f32("n")),
        (SequenceType(f32("n")), SequenceType(f32(2)), SequenceType(f32(2))),
        (OptionalType(None), OptionalType(f32(2)), OptionalType(f32(2))),
        (OptionalType(None), SequenceType(None), OptionalType(None)),
    ],
)
def test_of_two_types_the_more_exact_parts_count(
    known: ValueType | None, found: ValueType | None, merged: ValueType | None
) -> None:
    assert merge_types(known, found) == merged


def test_a_group_normalization_has_the_type_of_its_input() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[n,4,h] x) => (float[n,4,h] y) <float[4] scale = {1,1,1,1}, float[4] bias = {0,0,0,0}> {
        a = Relu(x)
        b = GroupNormalization<num_groups=2, epsilon=0.5>(a, scale, bias)
        y = Relu(b)
    }"""
    model = read_model(onnx.parser.parse_model(text))
    infer_types(model)
    node = nodes_by_name(model.graph)["GroupNormalization_0"]
    assert node.op_type == "GroupNormalization"
    assert node.attributes["num_groups"] == 2
    assert len(node.inputs) == 3
    assert str(node.outputs[0].type) == "float32[n,4,h]"


def test_what_onnx_guesses_of_attention_is_left_open() -> None:
    model = read_model(
        onnx.parser.parse_model(
            """<ir_version: 11, opset_import: ["" : 23]>
            g (float[b, q, e] Q, float[b, k, e] K, float[b, k, f] V, float[f] scale,
               int64[n] starts, int64[n] ends) => (t, s) {
              Y = Attention <q_num_heads = 3, kv_num_heads = 3> (Q, K, V)
              t = Div (Y, scale) s = Slice (t, starts, ends) }"""
        )
    )
    assert str(model.outputs[0].type) == "float32[b,q,?]"


def test_scores_are_not_promised_without_the_keys_of_the_past() -> None:
    model = read_model(
        onnx.parser.parse_model(
            """<ir_version: 11, opset_import: ["" : 23]>
            g (float[1, 3, 4, 8] Q, float[1, 3, 6, 8] K, float[1, 3, 6, 8] V,
               float[1, 3, p, 8] keys, float[1, 3, p, 8] values, int64[n] s, int64[n] e)
            => (made, scores, negated, cut) {
              Y, made, made_values, scores = Attention (Q, K, V, , keys, values)
              negated = Neg (scores) cut = Slice (made, s, e) }"""
        )
    )
    assert [str(value.type) for value in model.outputs[:3]] == [
        "float32[1,3,?,8]",
        "float32[1,3,4,?]",
        "float32[1,3,4,?]",
    ]


RESIZED = """<ir_version: 10, opset_import: ["" : 24]>
    g (float[] x, float[] regions, int64[] images, float[] scales, int64[] sizes, int64[] axes)
    => (float[] y)
    <float[0] roi = {}, float one = {1.0}> {
      small = RoiAlign <output_height = 2, output_width = 2> (x, regions, images)
      large = Resize <mode = "nearest"> (small, roi, scales, sizes)
      more = Unsqueeze (large, axes) y = Sum (more, one) }"""


def test_what_follows_a_node_that_onnx_cannot_infer_has_the_element_type_of_its_schema() -> None:
    model = without_types(read_model(onnx.parser.parse_model(RESIZED)).graph)
    infer_types(model)
    types = [str(node.outputs[0].type) for node in model.graph.nodes]
    assert types == ["float32[?,?,2,2]", *["float32[...]"] * 3]


@pytest.mark.parametrize("device", ["REFERENCE", "HETERO:CPU,REFERENCE"])
def test_a_device_takes_what_another_makes_of_unknown_rank(
    core: aioinfer.Core, device: str
) -> None:
    given = {
        "x": np.ones((1, 1, 4, 4), np.float32),
        "regions": np.array([[0, 0, 3, 3]], np.float32),
        "images": np.zeros(1, np.int64),
        "scales": np.zeros(0, np.float32),
        "sizes": np.array([1, 1, 3, 3]),
        "axes": np.array([0]),
    }
    with core.load_network(onnx.parser.parse_model(RESIZED), device) as network:
        result = network.create_infer_request().infer_sync(given)["y"]
    np.testing.assert_array_equal(result, np.full((1, 1, 1, 3, 3), 2, np.float32))
