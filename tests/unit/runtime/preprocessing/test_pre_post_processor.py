"""What build writes into a model: names, types, other inputs, bodies, and what runs it."""

import numpy as np
import pytest

import aioinfer
from aioinfer import DType, Node, TensorType, Value
from aioinfer.errors import TensorError
from aioinfer.preprocess import Layout, PrePostProcessor, Type
from aioinfer.runtime.graph import check_graph
from onnx_text import parse

TWO = """g (float[batch, 3, 4, 4] image, float[batch, 2] extra) => (float[batch, 3] out) {
    axes = Constant <value_ints = [2, 3]> ()
    means = ReduceMean <keepdims = 0> (image, axes)
    axis = Constant <value_ints = [1]> ()
    other = ReduceSum <keepdims = 1> (extra, axis)
    out = Add(means, other) }"""


def infer(model: aioinfer.Model, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with aioinfer.Core() as core, core.load_network(model, "REFERENCE") as network:
        outputs: dict[str, np.ndarray] = network.create_infer_request().infer_sync(given)
        return outputs


def of_type(dtype: DType, *shape: int | str | None) -> TensorType:
    return TensorType(dtype, shape)


def test_ports_keep_their_names_and_nodes_are_called_after_them() -> None:
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    ppp = PrePostProcessor(model)
    ppp.input().tensor().set_element_type("u8")
    ppp.input().preprocess().convert_element_type().mean(1.0).mean(2.0)
    ppp.output().postprocess().convert_element_type("f16")
    built = ppp.build()
    assert [value.name for value in (*built.inputs, *built.outputs)] == ["x", "y"]
    assert [node.name for node in built.graph.nodes] == [
        *("x/Cast", "x/Sub", "x/Sub_1", "Relu_0", "y/Cast"),
    ]
    assert [node.outputs[0].name for node in built.graph.nodes] == [
        *("x/Cast", "x/Sub", "x/Sub_1", "y/model", "y"),
    ]
    assert [node.fused_from for node in built.graph.nodes][:2] == [("x/Cast",), ("x/Sub",)]
    check_graph(built.graph)


def test_names_that_the_model_has_are_not_taken() -> None:
    model = parse("""g (float[2, 3] x) => (float[2, 3] y) <float[1] one = {1}> {
        a = Add(x, one)
        b = Neg(a)
        c = Neg(b)
        y = Sub(c, b) }""")
    names = iter(["x/Cast", "x/Sub", "y/model"])
    for node in model.graph.nodes:
        node.name = node.outputs[0].name = next(names, node.outputs[0].name)
    one = model.graph.initializers.pop("one")
    one.name = "x/constant"
    model.graph.add_initializer(one)
    ppp = PrePostProcessor(model)
    ppp.input().tensor().set_element_type("u8")
    ppp.input().preprocess().convert_element_type().mean(1.0)
    ppp.output().postprocess().custom(negated)
    built = ppp.build()
    check_graph(built.graph)
    taken = [node.name for node in built.graph.nodes]
    assert taken == ["x/Cast_1", "x/Sub_1", "x/Cast", "x/Sub", "y/model", "y", "y/negate"]
    x = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    assert np.array_equal(infer(built, {"x": x})["y"], -(2.0 * x))


def negated(value: Value) -> Value:
    return Node("Neg", [value], [Value("negated")], name="negate").outputs[0]


def test_inputs_that_nothing_is_declared_for_stay_as_they_are() -> None:
    model = parse(TWO)
    ppp = PrePostProcessor(model)
    ppp.input("image").tensor().set_element_type("u8").set_layout("NHWC")
    ppp.input("image").model().set_layout("NCHW")
    built = ppp.build()
    assert [value.type for value in built.inputs] == [
        of_type(DType.UINT8, "batch", 4, 4, 3),
        of_type(DType.FLOAT32, "batch", 2),
    ]
    image = np.arange(96).reshape(2, 4, 4, 3).astype(np.uint8)
    extra = np.ones((2, 2), np.float32)
    wanted = image.astype(np.float32).mean(axis=(1, 2)) + 2
    assert np.allclose(infer(built, {"image": image, "extra": extra})["out"], wanted)


def test_a_length_that_one_input_pins_is_pinned_in_all() -> None:
    ppp = PrePostProcessor(parse(TWO))
    ppp.input("image").tensor().set_layout("NHWC").set_shape([5, 4, 4, 3])
    ppp.input("image").model().set_layout("NCHW")
    ppp.input("extra").tensor().set_element_type("f64")
    built = ppp.build()
    assert [value.type for value in (*built.inputs, *built.outputs)] == [
        of_type(DType.FLOAT32, 5, 4, 4, 3),
        of_type(DType.FLOAT64, 5, 2),
        of_type(DType.FLOAT32, 5, 3),
    ]


def test_a_length_of_the_model_is_not_taken_for_one_of_the_picture() -> None:
    text = "g (float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Relu(x) }"
    ppp = PrePostProcessor(parse(text))
    ppp.input().tensor().set_layout("NHWC")
    ppp.input().preprocess().resize("nearest", 6, 8)
    ppp.input().model().set_layout("NCHW")
    built = ppp.build()
    assert built.inputs[0].type == of_type(DType.FLOAT32, "n", None, None, 3)
    assert built.outputs[0].type == of_type(DType.FLOAT32, "n", 3, 6, 8)
    outputs = infer(built, {"x": np.ones((2, 3, 4, 3), np.float32)})
    assert outputs["y"].shape == (2, 3, 6, 8)


def test_a_symbol_of_the_users_replaces_that_of_the_model() -> None:
    text = "g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }"
    ppp = PrePostProcessor(parse(text))
    ppp.input().tensor().set_shape(["rows", 3]).set_element_type("i32")
    built = ppp.build()
    assert built.inputs[0].type == of_type(DType.INT32, "rows", 3)
    assert built.outputs[0].type == of_type(DType.FLOAT32, "rows", 3)


def test_planes_are_named_after_the_input() -> None:
    text = "g (float[n, 3, 4, 6] x) => (float[n, 3, 4, 6] y) { y = Relu(x) }"
    for names, wanted in (([], ["x/Y", "x/UV"]), (["luma", "chroma"], ["x/luma", "x/chroma"])):
        ppp = PrePostProcessor(parse(text))
        ppp.input().tensor().set_color_format("NV12_TWO_PLANES", names).set_element_type(Type.u8)
        ppp.input().preprocess().convert_color("RGB")
        ppp.input().model().set_layout(Layout("NCHW"))
        text_of_plan = str(ppp)
        built = ppp.build()
        assert [value.name for value in built.inputs] == wanted
        assert [value.type for value in built.inputs] == [
            of_type(DType.UINT8, "n", 4, 6, 1),
            of_type(DType.UINT8, "n", 2, 3, 2),
        ]
        assert f"0: {wanted[0]} [n,4,6,1], [N,H,W,C], u8" in text_of_plan


def test_a_plane_cannot_have_the_name_of_another_value() -> None:
    text = "g (float[n, 3, 4, 6] x) => (float[n, 3, 4, 6] y) { y = Relu(x) }"
    model = parse(text)
    model.outputs[0].name = "x/UV"
    ppp = PrePostProcessor(model)
    ppp.input().tensor().set_color_format("NV12_TWO_PLANES")
    ppp.input().preprocess().convert_color("RGB")
    ppp.input().model().set_layout("NCHW")
    with pytest.raises(TensorError, match=r"has a value 'x/UV'.*sub_names"):
        ppp.build()


def test_a_body_reads_what_the_steps_make() -> None:
    text = """g (bool flag, float[2] x) => (float[2] y) {
        y = If (flag) <
            then_branch = then_graph () => (float[2] doubled) { doubled = Add(x, x) },
            else_branch = else_graph () => (float[2] same) { same = Identity(x) }
        > }"""
    ppp = PrePostProcessor(parse(text))
    ppp.input("x").tensor().set_element_type("u8")
    ppp.input("x").preprocess().convert_element_type().mean(1.0)
    built = ppp.build()
    x = np.array([3, 5], np.uint8)
    for flag, wanted in ((True, [4.0, 8.0]), (False, [2.0, 4.0])):
        outputs = infer(built, {"flag": np.array(flag), "x": x})
        assert outputs["y"].tolist() == wanted


def test_steps_on_an_input_that_is_an_output_too_are_refused() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.outputs = [*model.graph.outputs, model.inputs[0]]
    ppp = PrePostProcessor(model)
    ppp.input().preprocess().mean(1.0)
    with pytest.raises(TensorError, match="gives 'x' back as it is"):
        ppp.build()
    ppp = PrePostProcessor(model)
    ppp.output("x").postprocess().custom(negated)
    with pytest.raises(TensorError, match="not made for this output alone"):
        ppp.build()


def test_a_graph_without_nodes_takes_steps_around_nothing() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    ppp = PrePostProcessor(model)
    ppp.input().preprocess().mean(1.0)
    ppp.output().postprocess().custom(negated)
    assert infer(ppp.build(), {"x": np.array([3.0, 5.0], np.float32)})["y"].tolist() == [-2, -4]


def test_a_custom_function_makes_nodes_of_values_and_constants() -> None:
    def softened(value: Value) -> Value:
        half = Value("half", constant=np.array(0.5, np.float32))
        halved = Node("Mul", [value, half], [Value("halved")], name="").outputs[0]
        return Node("Add", [halved, half], [Value("halved")], name="").outputs[0]

    model = parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    ppp = PrePostProcessor(model)
    ppp.input().preprocess().custom(softened).custom(softened).mean(1.0)
    ppp.output().postprocess().custom(softened)
    assert "custom: ([n], <no layout>, f32) -> ([n], <no layout>, f32)" in repr(ppp)
    built = ppp.build()
    check_graph(built.graph)
    x = np.array([1.0, 7.0], np.float32)
    assert infer(built, {"x": x})["y"].tolist() == [0.5, 1.25]


def test_a_custom_operator_says_its_type_itself() -> None:
    def swirled(value: Value) -> Value:
        made = Value("swirled", value.type)
        return Node("Swirl", [value], [made], name="swirl", domain="com.acme").outputs[0]

    def untold(value: Value) -> Value:
        return Node("Swirl", [value], [Value("a")], name="s", domain="com.acme").outputs[0]

    text = "g (float[n] x) => (float[n] y) { y = Relu(x) }"
    ppp = PrePostProcessor(parse(text))
    ppp.input().tensor().set_element_type("u8")
    ppp.input().preprocess().convert_element_type().custom(swirled)
    built = ppp.build()
    assert [node.op for node in built.graph.nodes] == ["Cast", "com.acme::Swirl", "Relu"]
    assert built.outputs[0].type == of_type(DType.FLOAT32, "n")
    ppp = PrePostProcessor(parse(text))
    ppp.input().preprocess().custom(untold)
    with pytest.raises(TensorError, match=r"type of 'a' is not known.*TensorType"):
        ppp.build()


def test_element_type_and_shape_are_taken_from_an_array() -> None:
    ppp = PrePostProcessor(parse("g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }"))
    ppp.input().tensor().set_from(np.zeros((2, 5), np.int16))
    assert ppp.build().inputs[0].type == of_type(DType.INT16, 2, 5)
    ppp = PrePostProcessor(parse("g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }"))
    ppp.input().tensor().set_from(aioinfer.Tensor(np.zeros((2, 5), np.int16)))
    assert ppp.build().inputs[0].type == of_type(DType.INT16, 2, 5)


def test_a_model_of_unknown_rank_takes_the_shape_that_is_given() -> None:
    model = parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    for value in (*model.inputs, *model.outputs):
        value.type = TensorType(DType.FLOAT32, None)
    ppp = PrePostProcessor(model)
    ppp.input().tensor().set_shape([2, 3]).set_element_type("u8")
    built = ppp.build()
    assert infer(built, {"x": np.ones((2, 3), np.uint8)})["y"].shape == (2, 3)


def test_what_is_said_twice_is_the_same_object() -> None:
    ppp = PrePostProcessor(parse("g (float[n] x) => (float[n] y) { y = Relu(x) }"))
    assert ppp.input() is ppp.input("x") is ppp.input(0)
    assert ppp.output() is ppp.output("y") is ppp.output(0)
    assert ppp.input().tensor() is ppp.input().tensor()
    assert repr(PrePostProcessor(parse(TWO))) == "<PrePostProcessor: >"


def test_a_built_model_can_be_reshaped_and_built_on() -> None:
    model = parse("g (float[n, 3, 4, 4] x) => (float[n, 3, 4, 4] y) { y = Relu(x) }")
    for _ in range(2):
        ppp = PrePostProcessor(model)
        ppp.input().preprocess().mean(1.0)
        ppp.output().postprocess().custom(negated)
        model = ppp.build()
    model.reshape({"x": (1, 3, 4, 4)})
    outputs = infer(model, {"x": np.full((1, 3, 4, 4), 5.0, np.float32)})
    assert (outputs["y"] == 3.0).all()


def test_bytes_are_what_the_device_is_given() -> None:
    model = parse("g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] y) { y = Relu(x) }")
    ppp = PrePostProcessor(model)
    ppp.input().tensor().set_element_type("u8")
    with aioinfer.Core() as core, core.load_network(ppp.build(), "REFERENCE") as network:
        assert network.inputs[0].type.dtype is DType.UINT8
        with pytest.raises(TensorError, match="uint8"):
            network.create_infer_request().infer_sync({"x": np.zeros((1, 3, 4, 4), np.float32)})
