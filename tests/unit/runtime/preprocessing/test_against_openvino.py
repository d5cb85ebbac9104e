"""The same calls on OpenVINO's PrePostProcessor and on ours give equal outputs, and equal plans."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aioinfer
import aioinfer.preprocess
from presence import skip_if_missing

ov = pytest.importorskip("openvino", reason="wants aioinfer[bench]")
ov_preprocess = pytest.importorskip("openvino.preprocess", reason="wants aioinfer[bench]")


class Names:
    """One library's names, so that one function declares for both."""

    def __init__(self, *modules: Any) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        found = (getattr(module, name, None) for module in self._modules)
        return next(item for item in found if item is not None)


OURS = Names(aioinfer.preprocess)
THEIRS = Names(ov_preprocess, ov)

Declare = Callable[[Any, Any], Any]


@dataclass
class Case:
    """What is declared, the model's input, and the shapes of what is given."""

    name: str
    declare: Declare
    given: tuple[tuple[int, ...], ...]
    model: tuple[int | str, ...] = (1, 3, 8, 9)
    dtype: str = "float32"
    model_dtype: int = TensorProto.FLOAT
    tolerance: float = 0.0
    """Of each number; f32 rounding of numbers up to 255 is told by 1e-4."""
    has_equal_plan: bool = True
    devices: tuple[str, ...] = ("REFERENCE", "CPU")

    def __str__(self) -> str:
        return self.name


def proto(case: Case) -> onnx.ModelProto:
    """Give back what comes in, so that each element of it is seen."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Max", ["x", "x"], ["y"], "max")],
            "same",
            [helper.make_tensor_value_info("x", case.model_dtype, case.model)],
            [helper.make_tensor_value_info("y", case.model_dtype, case.model)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def arrays(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(len(case.name))
    return [rng.integers(0, 256, shape).astype(case.dtype) for shape in case.given]


def nhwc(ppp: Any, names: Any) -> tuple[Any, Any]:
    """Declare the usual ends, and return what is said of the tensor, and the steps."""
    tensor = ppp.input().tensor().set_layout(names.Layout("NHWC"))
    ppp.input().model().set_layout(names.Layout("NCHW"))
    return tensor, ppp.input().preprocess()


CASES: list[Case] = []


def case(*given: tuple[int, ...], **told: Any) -> Callable[[Declare], Declare]:
    def note(declare: Declare) -> Declare:
        CASES.append(Case(declare.__name__, declare, given, **told))
        return declare

    return note


@case((1, 8, 9, 3), dtype="uint8")
def implicit_conversions(ppp: Any, names: Any) -> None:
    tensor, _ = nhwc(ppp, names)
    tensor.set_element_type(names.Type.u8)


@case((1, 8, 9, 3), dtype="uint8", tolerance=1e-4)
def a_usual_classifier(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_element_type(names.Type.u8).set_color_format(names.ColorFormat.BGR)
    steps.convert_element_type(names.Type.f32).convert_color(names.ColorFormat.RGB)
    steps.mean([123.675, 116.28, 103.53]).scale([58.395, 57.12, 57.375])


@case((1, 3, 8, 9), dtype="float64", tolerance=1e-4, devices=("REFERENCE",))
def f64_to_f32(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_element_type(names.Type.f64)
    ppp.input().preprocess().mean(3.3).scale(7.7)


@case((1, 3, 8, 9), dtype="int32")
def i32_through_f32(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_element_type(names.Type.i32)
    ppp.input().preprocess().convert_element_type().mean(2.5)


@case((1, 3, 8, 9), dtype="int16", model_dtype=TensorProto.UINT8)
def i16_to_u8(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_element_type(names.Type.i16)


@case((1, 9, 8, 3))
def layout_by_numbers(ppp: Any, names: Any) -> None:
    ppp.input().preprocess().convert_layout([0, 3, 2, 1])


@case((1, 8, 9, 3))
def layouts_by_numbers_before_a_named_model(ppp: Any, names: Any) -> None:
    ppp.input().preprocess().convert_layout([0, 3, 1, 2]).mean([1.0, 2.0, 3.0])
    ppp.input().model().set_layout(names.Layout("NCHW"))


@case((8, 9, 3))
def a_layout_without_batch(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_layout(names.Layout("HWC"))
    ppp.input().model().set_layout(names.Layout("NCHW"))


@case((1, 8, 9, 3))
def open_layouts(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_layout(names.Layout("N...C"))
    ppp.input().model().set_layout(names.Layout("NC..."))
    ppp.input().preprocess().mean([1.0, 2.0, 3.0])


@case((1, 8, 9, 3))
def unnamed_axes(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_layout(names.Layout("N??C"))
    ppp.input().model().set_layout(names.Layout("NCHW"))


@case((9, 1, 8, 3))
def long_names_in_another_order(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_layout(names.Layout("[width,N,h,c]"))
    ppp.input().model().set_layout(names.Layout("nchw"))


@case((1, 3, 8, 9), tolerance=1e-4)
def a_layout_back_and_forth(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_layout(names.Layout("NCHW"))
    ppp.input().model().set_layout(names.Layout("NCHW"))
    steps = ppp.input().preprocess().convert_layout(names.Layout("NHWC"))
    steps.scale([1.5, 2.5, 3.5]).convert_layout(names.Layout("NCHW")).reverse_channels()


@case((1, 8, 9, 3), dtype="uint8")
def reversed_channels(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_element_type(names.Type.u8)
    steps.reverse_channels()


def resizing(name: str, algorithm: str, given: tuple[int, int], **told: Any) -> None:
    def declare(ppp: Any, names: Any) -> None:
        tensor, steps = nhwc(ppp, names)
        tensor.set_spatial_static_shape(*given)
        steps.resize(getattr(names.ResizeAlgorithm, f"RESIZE_{algorithm}"))

    CASES.append(Case(name, declare, ((1, *given, 3),), **told))


for algorithm in ("LINEAR", "NEAREST", "CUBIC", "BILINEAR_PILLOW", "BICUBIC_PILLOW"):
    for size in ((5, 7), (8, 17), (31, 3), (16, 18), (1, 1), (97, 64)):
        told = f"{algorithm}_of_{size[0]}x{size[1]}"
        resizing(told, algorithm, size, tolerance=1e-3)


@case((1, 5, 7, 3), dtype="uint8", model_dtype=TensorProto.UINT8, tolerance=1.0)
def linear_of_u8(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_spatial_static_shape(5, 7)
    steps.resize(names.ResizeAlgorithm.RESIZE_LINEAR)


@case((1, 5, 7, 3), dtype="uint8", model_dtype=TensorProto.UINT8, tolerance=1.0)
def cubic_of_u8(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_spatial_static_shape(5, 7)
    steps.resize(names.ResizeAlgorithm.RESIZE_CUBIC)


@case((1, 5, 7, 3), model=("batch", 3, "height", "width"), tolerance=1e-3)
def resized_by_numbers_for_an_open_model(ppp: Any, names: Any) -> None:
    _, steps = nhwc(ppp, names)
    steps.resize(names.ResizeAlgorithm.RESIZE_CUBIC, 13, 11)


@case((2, 15, 6, 3), dtype="uint8", model=("batch", 3, 8, 9), tolerance=1e-3)
def an_open_size(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_element_type(names.Type.u8).set_spatial_dynamic_shape()
    steps.convert_element_type(names.Type.f32).resize(names.ResizeAlgorithm.RESIZE_LINEAR)


@case((1, 3, 20, 21))
def cropped_also_from_the_end(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_shape([1, 3, 20, 21])
    ppp.input().preprocess().crop([0, 0, 2, -12], [1, 3, -10, 18])


@case((1, 3, 20, 9))
def cropped_on_the_first_axes(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_shape([1, 3, 20, 9])
    ppp.input().preprocess().crop([0, 0, 12], [1, 3, 20])


for mode in ("CONSTANT", "REFLECT", "SYMMETRIC"):

    def padded(ppp: Any, names: Any, mode: str = mode) -> None:
        ppp.input().tensor().set_shape([1, 3, 4, 5])
        chosen = getattr(names.PaddingMode, mode)
        ppp.input().preprocess().pad([0, 0, 1, 3], [0, 0, 3, 1], 7.5, chosen)

    CASES.append(Case(f"padded_{mode}", padded, ((1, 3, 4, 5),)))


@case((1, 3, 10, 7))
def padded_by_less_than_nothing(ppp: Any, names: Any) -> None:
    ppp.input().tensor().set_shape([1, 3, 10, 7])
    steps = ppp.input().preprocess()
    steps.pad([0, 0, -1, 1], [0, 0, -1, 1], [2.0], names.PaddingMode.CONSTANT)


def yuv(name: str, given: tuple[tuple[int, ...], ...], to: str, dtype: str) -> None:
    def declare(ppp: Any, names: Any) -> None:
        tensor, steps = nhwc(ppp, names)
        tensor.set_color_format(getattr(names.ColorFormat, name))
        tensor.set_element_type(names.Type.u8 if dtype == "uint8" else names.Type.f32)
        steps.convert_color(getattr(names.ColorFormat, to))

    told = f"{name}_{dtype}_to_{to}"
    # Theirs does not show how the planes are called, which nothing has named.
    is_alike = len(given) == 1
    CASES.append(
        Case(told, declare, given, (1, 3, 8, 10), dtype, tolerance=2e-3, has_equal_plan=is_alike)
    )


for color, planes in {
    "NV12_SINGLE_PLANE": ((1, 12, 10, 1),),
    "NV12_TWO_PLANES": ((1, 8, 10, 1), (1, 4, 5, 2)),
    "I420_SINGLE_PLANE": ((1, 12, 10, 1),),
    "I420_THREE_PLANES": ((1, 8, 10, 1), (1, 4, 5, 1), (1, 4, 5, 1)),
}.items():
    for wanted in ("RGB", "BGR"):
        for kind in ("uint8", "float32"):
            yuv(color, planes, wanted, kind)


@case((2, 30, 20, 1), dtype="uint8", model=("batch", 3, 6, 8), tolerance=1e-3)
def frames_of_a_camera(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_color_format(names.ColorFormat.NV12_SINGLE_PLANE).set_element_type(names.Type.u8)
    tensor.set_spatial_static_shape(20, 20)
    steps.convert_color(names.ColorFormat.BGR).convert_element_type(names.Type.f32)
    steps.resize(names.ResizeAlgorithm.RESIZE_LINEAR)


@case((1, 24, 20, 1), dtype="uint8", model=(1, 3, "height", "width"))
def open_frames_of_a_camera(ppp: Any, names: Any) -> None:
    tensor, steps = nhwc(ppp, names)
    tensor.set_color_format(names.ColorFormat.I420_SINGLE_PLANE).set_element_type(names.Type.u8)
    steps.convert_color(names.ColorFormat.RGB)


for first, second, count in (
    *(("RGB", "BGR", 3), ("RGBX", "RGB", 4), ("RGBX", "BGR", 4), ("BGRX", "RGB", 4)),
    *(("BGRX", "BGR", 4), ("RGB", "RGB", 3)),
):

    def recolored(ppp: Any, names: Any, first: str = first, second: str = second) -> None:
        tensor, steps = nhwc(ppp, names)
        tensor.set_color_format(getattr(names.ColorFormat, first)).set_element_type(names.Type.u8)
        steps.convert_color(getattr(names.ColorFormat, second))

    CASES.append(Case(f"{first}_to_{second}", recolored, ((1, 8, 9, count),), dtype="uint8"))

for first in ("RGB", "BGR"):
    for kind in ("uint8", "float32"):

        def grayed(ppp: Any, names: Any, first: str = first, kind: str = kind) -> None:
            tensor, steps = nhwc(ppp, names)
            tensor.set_color_format(getattr(names.ColorFormat, first))
            tensor.set_element_type(names.Type.u8 if kind == "uint8" else names.Type.f32)
            steps.convert_color(names.ColorFormat.GRAY)

        told = f"{first}_{kind}_to_GRAY"
        CASES.append(Case(told, grayed, ((1, 8, 9, 3),), (1, 1, 8, 9), kind, tolerance=1e-3))


@case((1, 3, 8, 9))
def outputs_of_another_type_and_layout(ppp: Any, names: Any) -> None:
    ppp.output().model().set_layout(names.Layout("NCHW"))
    ppp.output().tensor().set_layout(names.Layout("NHWC")).set_element_type(names.Type.i32)


@case((1, 3, 8, 9), tolerance=1e-3)
def steps_behind_the_model(ppp: Any, names: Any) -> None:
    steps = ppp.output().postprocess().convert_layout([0, 2, 3, 1])
    steps.convert_element_type(names.Type.f16)


@case((1, 3, 8, 9))
def named_steps_behind_the_model(ppp: Any, names: Any) -> None:
    ppp.output("y").model().set_layout(names.Layout("NCHW"))
    ppp.output(0).postprocess().convert_layout(names.Layout("NWHC"))
    ppp.output().tensor().set_element_type(names.Type.f64)


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as core:
        yield core


@functools.cache
def outputs_of_openvino(index: int) -> np.ndarray:
    case = CASES[index]
    theirs = ov_preprocess.PrePostProcessor(ov.Core().read_model(proto(case).SerializeToString()))
    case.declare(theirs, THEIRS)
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    found: np.ndarray = ov.Core().compile_model(theirs.build(), "CPU", exact)(arrays(case))[0]
    return found


@pytest.mark.parametrize(
    ("case", "device"),
    [(case, device) for case in CASES for device in case.devices],
    ids=str,
)
def test_outputs_equal_those_of_openvino(case: Case, device: str, core: aioinfer.Core) -> None:
    skip_if_missing(core, device)
    given, wanted = arrays(case), outputs_of_openvino(CASES.index(case))
    model = core.read_model(proto(case))
    ours = aioinfer.PrePostProcessor(model)
    case.declare(ours, OURS)
    with core.load_network(ours.build(), device) as network:
        made = network.create_infer_request().infer_sync(given)["y"]
    assert made.dtype == wanted.dtype
    assert made.shape == wanted.shape
    off = np.abs(made.astype(np.float64) - wanted.astype(np.float64)).max()
    assert off <= case.tolerance


@pytest.mark.parametrize("case", [case for case in CASES if case.has_equal_plan], ids=str)
def test_the_plan_reads_as_openvinos(case: Case, core: aioinfer.Core) -> None:
    theirs = ov_preprocess.PrePostProcessor(ov.Core().read_model(proto(case).SerializeToString()))
    case.declare(theirs, THEIRS)
    ours = aioinfer.PrePostProcessor(core.read_model(proto(case)))
    case.declare(ours, OURS)
    assert without_names(str(ours)) == lines_of(str(theirs))


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def without_names(text: str) -> list[str]:
    """Put ? for the symbols of our models, which OpenVINO keeps apart from shapes."""
    for symbol in ("batch", "height", "width"):
        for end in (",", "]"):
            text = text.replace(f"{symbol}{end}", f"?{end}")
    return lines_of(text)
