"""Wrong declarations raise errors that name the port and the way out, at the call if possible."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import ModelError, NotSupportedError, TensorError
from aioinfer.preprocess import PrePostProcessor
from onnx_text import parse

IMAGE = "same (float[batch, 3, 8, 10] image) => (float[batch, 3, 8, 10] out) { out = Relu(image) }"


def processor(text: str = IMAGE) -> PrePostProcessor:
    return PrePostProcessor(parse(text))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda i: i.tensor().set_layout("NHQQ"), "input 'image', set_layout: .*is in it twice"),
        (lambda i: i.model().set_layout("N C"), "input 'image', set_layout: .*no name of an axis"),
        (lambda i: i.tensor().set_element_type("u80"), "no element type; did you mean 'u8'"),
        (lambda i: i.tensor().set_element_type(None), "no element type; there are"),
        (lambda i: i.tensor().set_color_format("RBG"), "no colour format; did you mean"),
        (lambda i: i.tensor().set_color_format("NV12_TWO_PLANES", ["y"]), "2 tensors.*sub_names"),
        (lambda i: i.tensor().set_color_format("RGB", ["a"]), "1 tensors.*sub_names"),
        (lambda i: i.tensor().set_shape("abc"), "tuple or list of lengths"),
        (lambda i: i.tensor().set_shape([1, -5, 3]), "axis 1 is -5"),
        (lambda i: i.tensor().set_spatial_static_shape(0, 5), "height is an integer of at least 1"),
        (lambda i: i.tensor().set_spatial_static_shape(5, 2.5), "width is an integer"),
        (lambda i: i.tensor().set_from("text"), "has no dtype and shape"),
        (lambda i: i.preprocess().mean([]), "neither a number nor a list"),
        (lambda i: i.preprocess().mean("127"), "neither a number nor a list"),
        (lambda i: i.preprocess().mean(float("nan")), "not finite"),
        (lambda i: i.preprocess().scale([1.0, 0.0, 2.0]), "divide by zero"),
        (lambda i: i.preprocess().convert_color("CMYK"), "no colour format"),
        (lambda i: i.preprocess().convert_layout([0, 2, 2]), "does not name each of 3 axes once"),
        (lambda i: i.preprocess().convert_layout([0, "a"]), "integer for each axis"),
        (lambda i: i.preprocess().resize("lanczos"), "no resize algorithm.*linear"),
        (lambda i: i.preprocess().resize("linear", 5), "both a height and a width"),
        (lambda i: i.preprocess().resize("linear", 5, -5), "width is an integer of at least 1"),
        (lambda i: i.preprocess().crop([0, 0], [1]), "begin has 2 numbers and end 1"),
        (lambda i: i.preprocess().pad([0], [0, 1]), "pads_begin has 1 numbers and pads_end 2"),
        (lambda i: i.preprocess().pad([0], [0], 1.0, "wrap"), "no padding mode"),
        (lambda i: i.preprocess().pad([0], [0], [1.0, 2.0]), "one value fills"),
        (lambda i: i.preprocess().custom("relu"), "no function"),
    ],
)
def test_a_bad_argument_is_refused_by_the_call(call: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(TensorError, match=f"input 'image', .*{why.split(', ')[-1]}") as caught:
        call(processor().input())
    assert caught.value.tensor == "image"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda i: i.tensor().set_layout("NHWC"), lambda i: i.tensor().set_layout("NCHW")),
        (lambda i: i.model().set_layout("NHWC"), lambda i: i.model().set_layout("NCHW")),
        (lambda i: i.tensor().set_element_type("u8"), lambda i: i.tensor().set_element_type("f32")),
        (
            lambda i: i.tensor().set_color_format("RGB"),
            lambda i: i.tensor().set_color_format("BGR"),
        ),
        (lambda i: i.tensor().set_shape([1, 2]), lambda i: i.tensor().set_shape([1, 3])),
        (lambda i: i.tensor().set_shape([1, 2]), lambda i: i.tensor().set_spatial_dynamic_shape()),
        (
            lambda i: i.tensor().set_spatial_dynamic_shape(),
            lambda i: i.tensor().set_spatial_static_shape(5, 6),
        ),
        (
            lambda i: i.tensor().set_spatial_static_shape(5, 6),
            lambda i: i.tensor().set_shape([1, 5, 6, 3]),
        ),
    ],
)
def test_a_call_that_contradicts_an_earlier_one_is_refused(
    first: Callable[[Any], Any], second: Callable[[Any], Any]
) -> None:
    said = processor().input()
    first(said)
    first(said)
    with pytest.raises(TensorError, match=r"was given as .* before; give it once"):
        second(said)


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda i: i.preprocess().mean([1, 2, 3]), "does not say which axis is C.*set_layout"),
        (lambda i: i.preprocess().resize("linear"), "does not say which axis is H.*set_layout"),
        (lambda i: i.preprocess().reverse_channels(), "does not say which axis is C.*set_layout"),
        (lambda i: i.tensor().set_spatial_dynamic_shape(), "tensor: .*which axis is H.*set_layout"),
        (lambda i: i.tensor().set_layout("NHW"), "is for 3 axes, and the tensor has 4"),
        (lambda i: i.model().set_layout("NHW"), "is for 3 axes, and the tensor has 4"),
        (lambda i: i.tensor().set_shape([1, 3, 5, 5]), "end in .1,3,5,5.*takes .batch,3,8,10"),
        (lambda i: i.tensor().set_shape([3, 8, 9]), "steps end in .3,8,9"),
        (lambda i: i.tensor().set_color_format("BGR"), "give model.*set_layout"),
        (lambda i: i.preprocess().convert_color("BGR"), "colours are not known.*set_color_format"),
        (lambda i: i.preprocess().crop([0] * 5, [1] * 5), "5 axes are cropped.*has 4"),
        (lambda i: i.preprocess().crop([0, 2], [1, 1]), "nothing is left"),
        (lambda i: i.preprocess().pad([0, 1], [0, 1]), "2 axes are padded.*has 4"),
        (lambda i: i.preprocess().pad([0, 0, 0, 9], [0] * 4, 0, "symmetric").pad(
            [0, 0, 0, 99], [0] * 4, 0, "symmetric"), "cannot be padded symmetrically"),
        (lambda i: i.preprocess().convert_layout([1, 0]), "names 2 axes, and the tensor has 4"),
        (lambda i: i.preprocess().custom(lambda value: 5), "custom.*returned int"),
        (lambda i: i.preprocess().custom(lambda value: aioinfer.Value("a")), "neither made by"),
    ],
)  # fmt: skip
def test_what_contradicts_the_model_is_refused_by_build_and_told_by_repr(
    declare: Callable[[Any], Any], why: str
) -> None:
    ppp = processor()
    declare(ppp.input())
    with pytest.raises(TensorError, match=f"input 'image', .*{why}") as caught:
        ppp.build()
    assert caught.value.tensor == "image"
    assert f"Error occurred: {caught.value}" in str(ppp)


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda i: i.preprocess().mean([1, 2]), r"mean \(1,2\): mean has 2 numbers for 3 channels"),
        (lambda i: i.tensor().set_element_type("u8") and i.preprocess().scale(2), "u8; put conv"),
        (lambda i: i.preprocess().convert_layout("NHWD"), "nothing tells which axis becomes 'D'"),
        (lambda i: i.tensor().set_color_format("GRAY") and i.preprocess().convert_color("RGB"),
         "GRAY cannot become RGB; "),
        (lambda i: i.tensor().set_color_format("NV12_TWO_PLANES") and i.preprocess().mean(1.0),
         "in 2 planes.*convert_color"),
        (lambda i: i.tensor().set_color_format("NV12_TWO_PLANES"), "in 2 planes.*convert_color"),
        (lambda i: i.tensor().set_color_format("RGB").set_shape([1, 8, 10, 4]), "has 3 channels"),
        (lambda i: i.tensor().set_color_format("NV12_SINGLE_PLANE").set_shape([1, 7, 10, 3]),
         "H is 7, and two by two pixels"),
        (lambda i: i.tensor().set_shape([None, None, None, 3]).set_element_type("i64")
         and i.preprocess().resize("linear", 8, 11), "steps end in"),
    ],
)  # fmt: skip
def test_what_contradicts_layouts_is_refused_by_build(
    declare: Callable[[Any], Any], why: str
) -> None:
    ppp = processor()
    ppp.input().tensor().set_layout("NHWC")
    ppp.input().model().set_layout("NCHW")
    declare(ppp.input())
    with pytest.raises(TensorError, match=f"input 'image', .*{why}"):
        ppp.build()


def test_a_resize_to_a_length_that_the_model_leaves_open_wants_one() -> None:
    ppp = processor("g (float[1, 3, h, w] image) => (float[1, 3, h, w] out) { out = Relu(image) }")
    ppp.input().tensor().set_layout("NHWC").set_spatial_static_shape(5, 5)
    ppp.input().preprocess().resize("linear")
    ppp.input().model().set_layout("NCHW")
    with pytest.raises(TensorError, match=r"model leaves its H open .*say which length"):
        ppp.build()


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda ppp: ppp.input(), "has 2 inputs; say which"),
        (lambda ppp: ppp.input("c"), r"no input 'c'.*it has \['left', 'right'\]"),
        (lambda ppp: ppp.input("lefd"), "did you mean 'left'"),
        (lambda ppp: ppp.input(2), "2 is no input of the model, which has 2"),
        (lambda ppp: ppp.input(-1), "-1 is no input"),
        (lambda ppp: ppp.input(1.5), "1.5 is no input"),
        (lambda ppp: ppp.output("left"), "no output 'left'"),
        (lambda ppp: ppp.output(1), "1 is no output"),
    ],
)
def test_an_unknown_port_is_refused_with_those_there_are(
    ask: Callable[[Any], Any], why: str
) -> None:
    text = "g (float[n] left, float[n] right) => (float[n] sum) { sum = Add(left, right) }"
    with pytest.raises(TensorError, match=why):
        ask(processor(text))


def test_a_port_that_is_no_tensor_is_refused() -> None:
    text = "g (seq(float[n]) items) => (int64[] count) { count = SequenceLength(items) }"
    with pytest.raises(TensorError, match=r"'items' is seq.*steps are for tensors"):
        processor(text).input()


def test_a_failed_build_leaves_the_model_as_it_was_and_may_be_mended() -> None:
    model = parse(IMAGE)
    before, graph = str(model), model.graph
    ppp = PrePostProcessor(model)
    ppp.input().tensor().set_layout("NHWC").set_spatial_static_shape(20, 21)
    ppp.input().model().set_layout("NCHW")
    with pytest.raises(TensorError, match="steps end in"):
        ppp.build()
    assert str(model) == before
    assert model.graph is graph
    ppp.input().preprocess().resize("linear")
    assert ppp.build() is model
    assert model.inputs[0].type == aioinfer.TensorType(aioinfer.DType.FLOAT32, ("batch", 20, 21, 3))


def test_steps_are_built_once() -> None:
    ppp = processor()
    ppp.build()
    with pytest.raises(ModelError, match="are in the model 'same' already"):
        ppp.build()


def test_only_models_are_taken() -> None:
    with pytest.raises(ModelError, match=r"Core\.read_model"):
        PrePostProcessor("model.onnx")  # type: ignore[arg-type]


def test_a_model_that_does_not_take_what_the_steps_pin_is_named() -> None:
    text = """g (float[n] left, float[n] right, float[2] pair) => (float[n] sum) {
        sum = Add(left, right) }"""
    ppp = processor(text)
    ppp.input("left").tensor().set_shape([3])
    ppp.input("right").tensor().set_shape([4])
    with pytest.raises(TensorError, match=r"symbol 'n' would be 3 .* and 4"):
        ppp.build()


def test_memory_types_are_not_supported() -> None:
    with pytest.raises(NotSupportedError, match=r"'image', set_memory_type: .*leave the call out"):
        processor().input().tensor().set_memory_type("GPU_BUFFER")


def test_what_a_custom_function_raises_is_its_own() -> None:
    ppp = processor()

    def broken(value: aioinfer.Value) -> aioinfer.Value:
        raise ZeroDivisionError("of the user's")

    ppp.input().preprocess().custom(broken)
    with pytest.raises(ZeroDivisionError, match="of the user's"):
        ppp.build()


def test_a_custom_function_may_not_use_nodes_of_a_model() -> None:
    model = parse(IMAGE)
    ppp = PrePostProcessor(model)
    ppp.input().preprocess().custom(lambda value: model.outputs[0])
    with pytest.raises(TensorError, match=r"made by .* of another graph"):
        ppp.build()


def test_a_custom_function_may_not_change_what_it_is_given() -> None:
    def renamed(value: aioinfer.Value) -> aioinfer.Value:
        value.name = "another"
        return value

    def retyped(value: aioinfer.Value) -> aioinfer.Value:
        value.type = aioinfer.TensorType(aioinfer.DType.INT64, (1,))
        return value

    for function in (renamed, retyped):
        ppp = processor()
        ppp.input().preprocess().custom(function)
        with pytest.raises(TensorError, match=r"'image', custom: .*has changed the tensor"):
            ppp.build()


def test_nodes_of_a_custom_function_may_not_go_round() -> None:
    def circle(value: aioinfer.Value) -> aioinfer.Value:
        first, last = aioinfer.Value("first"), aioinfer.Value("last")
        aioinfer.Node("Add", [value, last], [first], {}, name="first")
        aioinfer.Node("Neg", [first], [last], {}, name="last")
        return last

    ppp = processor()
    ppp.input().preprocess().custom(circle)
    with pytest.raises(TensorError, match="without a circle"):
        ppp.build()


def test_numbers_may_be_numpys() -> None:
    ppp = processor()
    ppp.input().tensor().set_layout("NCHW").set_element_type(np.uint8)
    steps = ppp.input().preprocess().convert_element_type(np.float32)
    steps.mean(np.array([1.0, 2.0, 3.0])).scale(np.array(2)).pad(np.zeros(4, int), [0] * 4)
    assert ppp.build().inputs[0].type == aioinfer.TensorType(
        aioinfer.DType.UINT8, ("batch", 3, 8, 10)
    )
