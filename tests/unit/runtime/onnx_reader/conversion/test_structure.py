import onnx
import onnx.helper
import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from onnx_text import parse_proto


def parse(body: str, opset: int = 13, outputs: str = "y") -> onnx.ModelProto:
    return parse_proto(f"g (float[2] x, bool c, int64 n) => ({outputs}) {{ {body} }}", opset)


def shuffled(proto: onnx.ModelProto) -> onnx.ModelProto:
    nodes = list(reversed(proto.graph.node))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


def op_types(model: Model) -> list[str]:
    return [node.op_type for node in model.graph.nodes]


@pytest.mark.parametrize("opset", [9, 13])
def test_nodes_are_put_in_topological_order(opset: int) -> None:
    proto = shuffled(parse("a = Relu (x) b = Neg (a) y = Abs (b)", opset))
    assert op_types(read_model(proto)) == ["Relu", "Neg", "Abs"]


def test_a_node_comes_after_what_its_bodies_capture() -> None:
    proto = shuffled(
        parse(
            """a = Relu (x) y = If (c) <
              then_branch = yes () => (float[2] p) { p = Neg (a) },
              else_branch = no () => (float[2] q) { q = Abs (x) }>"""
        )
    )
    assert op_types(read_model(proto)) == ["Relu", "If"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Add (x, nothing)", r"uses 'nothing', which nothing defines"),
        ("a = Add (x, b) b = Neg (a) y = Relu (b)", r"cycle; nodes .* a Add without a name"),
        ("y = Relu (x) y = Neg (x)", "defines 'y' a second time"),
        ("x = Relu (x) y = Neg (x)", "defines 'x' a second time"),
        ("a = Relu (x)", "returns 'y', which nothing in it defines"),
        (
            """y = If (c) <
              then_branch = yes () => (float[2] p) { p = Neg (gone) },
              else_branch = no () => (float[2] q) { q = Abs (x) }>""",
            "graph 'yes'.* uses 'gone'",
        ),
        (
            """y = If (c) <
              then_branch = yes () => (float[2] p) { p = Neg (y) },
              else_branch = no () => (float[2] q) { q = Abs (x) }>""",
            "cycle",
        ),
    ],
)
def test_wiring_that_cannot_be_is_refused(body: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_model(parse(body))


def test_inputs_and_weights_of_one_name_are_refused() -> None:
    proto = parse("y = Relu (x)")
    proto.graph.input.append(proto.graph.input[0])
    with pytest.raises(ModelError, match="inputs of graph 'g' name 'x' twice"):
        read_model(proto)
    proto = parse("y = Relu (x)")
    for _ in range(2):
        proto.graph.initializer.append(onnx.helper.make_tensor("w", 1, [1], [0]))
    with pytest.raises(ModelError, match="initializers of graph 'g' name 'w' twice"):
        read_model(proto)


def test_a_value_without_a_name_is_refused() -> None:
    proto = parse("y = Relu (x)")
    proto.graph.initializer.append(onnx.helper.make_tensor("", 1, [1], [0]))
    with pytest.raises(ModelError, match="without a name"):
        read_model(proto)


def test_bodies_capture_outer_values_by_reference() -> None:
    model = read_model(
        parse(
            """a = Relu (x) y = Loop (n, c, a) <body = outer (int64 i, bool k, float[2] v)
              => (bool k_out, float[2] v_out) {
                k_out = Identity (k)
                v_out = If (k) <
                  then_branch = yes () => (float[2] p) { p = Add (a, v) },
                  else_branch = no () => (float[2] q) { q = Sub (x, v) }>
              }>"""
        )
    )
    relu, loop = model.graph.nodes
    choice = list(loop.bodies()[0].nodes)[1]
    add = next(iter(choice.bodies()[0].nodes))
    assert add.inputs[0] is relu.outputs[0]
    assert add.inputs[1] is loop.bodies()[0].inputs[2]
    assert (add, 0) in relu.outputs[0].uses
    assert loop.captures() == [model.inputs[0]]


def test_a_body_may_return_an_outer_value_and_reuse_a_name() -> None:
    model = read_model(
        parse(
            """a = Relu (x) y = If (c) <
              then_branch = yes () => (float[2] p) { a = Neg (x) p = Abs (a) },
              else_branch = no () => (float[2] q) { q = Identity (a) }>""",
            opset=onnx.defs.onnx_opset_version(),
        )
    )
    yes, no = model.node("If_0").bodies()
    assert [node.inputs[0].producer.graph for node in list(yes.nodes)[1:]] == [yes]  # type: ignore
    assert next(iter(no.nodes)).inputs[0] is model.node("Relu_0").outputs[0]


def test_types_of_values_are_inferred_in_bodies_too() -> None:
    model = read_model(
        parse(
            """a = Relu (x) y = If (c) <
              then_branch = yes () => (p) { t = Neg (a) p = Abs (t) },
              else_branch = no () => (q) { q = Abs (a) }>"""
        )
    )
    body = model.node("If_0").bodies()[0]
    assert [str(node.outputs[0].type) for node in body.nodes] == ["float32[2]", "float32[2]"]
    assert str(model.outputs[0].type) == "float32[2]", "both branches make that"


def test_sequence_and_optional_types_are_kept() -> None:
    model = read_model(
        parse("s = SequenceConstruct (x, x) o = Optional (s) y = OptionalHasElement (o)", opset=18)
    )
    types = {node.op_type: str(node.outputs[0].type) for node in model.graph.nodes}
    assert types == {
        "SequenceConstruct": "seq(float32[?])",
        "Optional": "optional(seq(float32[?]))",
        "OptionalHasElement": "bool[]",
    }


def test_an_output_that_the_file_leaves_out_gets_a_name() -> None:
    proto = parse(", y = Dropout (x)", opset=22)
    node = next(iter(read_model(proto).graph.nodes))
    assert [value.name for value in node.outputs] == ["Dropout_0/unused_0", "y"]


def test_lengths_that_inference_cannot_tell_are_unknown_and_symbols_stay() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 13]>
        g (float[batch, 4] x, int64[2] s) => (y, z) { y = Reshape (x, s) z = Relu (x) }"""
    )
    model = read_model(proto)
    assert [str(value.type) for value in model.outputs] == ["float32[?,?]", "float32[batch,4]"]


def test_a_negative_length_of_an_input_is_unknown() -> None:
    proto = parse("y = Relu (x)")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert str(read_model(proto).inputs[0].type) == "float32[?]"


def test_an_element_type_that_onnx_does_not_have_is_refused() -> None:
    proto = parse("y = Relu (x)")
    proto.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(ModelError, match="value 'x' has element type 99"):
        read_model(proto)


def test_an_attribute_of_a_function_outside_of_one_is_refused() -> None:
    proto = parse("y = LeakyRelu (x)", opset=onnx.defs.onnx_opset_version())
    proto.graph.node[0].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    with pytest.raises(ModelError, match="attribute 'alpha' of node 'LeakyRelu_0' refers"):
        read_model(proto)


def test_a_model_whose_types_contradict_each_other_is_read() -> None:
    proto = parse("y = MatMul (x, x)", outputs="float[7,7] y")
    assert str(read_model(proto).outputs[0].type) == "float32[]"


def test_a_long_vector_does_not_stop_the_inference() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 13]>
        g (float[5000000000] x) => (y) { t = Add (x, x) y = Neg (t) }"""
    )
    assert str(read_model(proto).outputs[0].type) == "float32[5000000000]"
