"""Transposed convolutions of float32 that are convolved by phases equal REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.windows.convolution_primitives import Convolution
from aioinfer.backends.cpu.kernels.windows.phases import phases_of
from aioinfer.backends.cpu.kernels.windows.transposed_phases import goes_by_phases, lies_in_planes
from aioinfer.runtime.graph import DType
from aioinfer.runtime.lowering.window import Window
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import (
    assert_batches_of_a_run_and_of_a_blob,
    assert_same_as_reference,
    model_of,
)
from unit.backends.cpu.kernels.stepping import implementations

FOLLOWERS = ("", "Relu", "Tanh", "Add", "Mul of a row")


def random_form(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Draw shapes of data and weights, and attributes that leave at least a place of each axis."""
    draw = np.random.default_rng(seed)
    rank, groups = int(draw.integers(1, 4)), int(draw.choice([1, 2, 3, 8, 21]))
    read, made = (1, 1) if draw.random() < 0.4 else map(int, draw.integers(1, 6, 2))
    lengths, kernel, strides = (draw.integers(1, most, rank) for most in (7, 6, 5))
    kernel = np.maximum(kernel, strides)
    if rank == 2 and draw.random() < 0.2:
        strides = np.array([8, 9])
        kernel = 2 * strides
    dilations = np.where(draw.random(rank) < 0.8, 1, draw.integers(1, 4, rank))
    extra = np.array([int(draw.integers(0, most)) for most in np.maximum(strides, dilations)])
    extra = extra * (draw.random(rank) < 0.5)
    whole = (lengths - 1) * strides + (kernel - 1) * dilations + 1
    begins = np.array([int(draw.integers(0, (length + 1) // 2)) for length in whole])
    ends = np.array([int(draw.integers(0, (length + 1) // 2)) for length in whole])
    attributes: dict[str, Any] = {
        "group": groups,
        "strides": strides.tolist(),
        "dilations": dilations.tolist(),
    }
    if draw.random() < 0.25:
        attributes["output_shape"] = draw.integers(lengths, whole + 1).tolist()
    else:
        attributes["pads"] = [*begins.tolist(), *ends.tolist()]
        attributes["output_padding"] = extra.tolist()
    source = (int(draw.integers(1, 4)), read * groups, *map(int, lengths))
    return source, (read * groups, made, *map(int, kernel)), attributes


def model_of_form(
    form: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]],
    follower: str = "",
    *,
    has_bias: bool = True,
    constants: str = "wb",
    dynamic: bool = False,
) -> tuple[Any, dict[str, np.ndarray]]:
    source, weights, attributes = form
    made = weights[1] * attributes["group"]
    arrays = {"x": numbers(*source) - 1, "w": numbers(*weights) - 2}
    if has_bias:
        arrays["b"] = numbers(made)
    name = "c" if follower else "y"
    nodes = [helper.make_node("ConvTranspose", list(arrays), [name], **attributes)]
    if follower == "Mul of a row":
        arrays["r"] = numbers(made, *(1 for _ in source[2:]))
        nodes.append(helper.make_node("Mul", ["c", "r"], ["y"]))
    elif follower:
        nodes.append(helper.make_node(follower, ["c"] * (1 + (follower == "Add")), ["y"]))
    inputs = {name: item for name, item in arrays.items() if name not in (*constants, "r")}
    known = {name: item for name, item in arrays.items() if name not in inputs}
    return model_of(nodes, inputs, ("y",), known, dynamic=dynamic), inputs


@pytest.mark.parametrize("seed", range(60))
def test_random_attributes(core: Core, seed: int) -> None:
    model, inputs = model_of_form(
        random_form(seed), FOLLOWERS[seed % len(FOLLOWERS)], has_bias=seed % 3 > 0
    )
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=1 + seed % 2)


FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "bilinear": (
        (2, 21, 5, 6),
        (21, 1, 16, 16),
        {"strides": [8, 8], "pads": [4] * 4, "group": 21},
    ),
    "one group": ((1, 21, 5, 6), (21, 12, 16, 16), {"strides": [8, 8], "group": 1}),
    "touching": ((2, 32, 5, 6), (32, 8, 2, 2), {"strides": [2, 2], "group": 4}),
    "no strides": ((1, 32, 5, 6), (32, 8, 3, 3), {"pads": [1] * 4, "group": 4}),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_they_are_compiled_convolutions(
    core: Core, name: str, follower: str, dynamic: bool
) -> None:
    model, inputs = model_of_form(FORMS[name], follower, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs)
    names = [step for op, step in implementations(core, model, inputs) if "ConvTranspose" in op]
    assert not any("ref:" in step or "deconv" in step for step in names)
    assert ("native:copy" in names) == (name != "no strides")


@pytest.mark.parametrize("name", FORMS)
def test_a_bias_of_the_run_is_added_to_what_lies_in_its_places(core: Core, name: str) -> None:
    model, inputs = model_of_form(FORMS[name], "Relu", constants="w")
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("name", FORMS)
def test_batches_that_come_with_the_run_and_a_blob_that_has_them(core: Core, name: str) -> None:
    model, inputs = model_of_form(FORMS[name], "Relu", dynamic=True)
    assert_batches_of_a_run_and_of_a_blob(core, model, inputs["x"])


@pytest.mark.parametrize(
    ("groups", "stride", "is_output", "wanted"),
    [
        (8, 8, False, True),
        (8, 2, False, False),
        (1, 8, False, False),  # channels are neighbours of each other
        (1, 2, True, True),
    ],
)
def test_where_channels_lie_outermost(
    groups: int, stride: int, is_output: bool, wanted: bool
) -> None:
    none = (0, 0)
    window = Window((2 * stride,) * 2, (stride,) * 2, (1, 1), none, none)
    made, weights = (4 * stride,) * 2, (8, 8, *window.kernel)
    dims = (groups, 1, 1, *window.kernel) if groups > 1 else weights
    shapes = (1, 8, 3, 3), dims, (1, 8, *made)
    whole = Convolution("", 0, *shapes, window, DType.FLOAT32)
    phases = phases_of(window, (3, 3), made)
    assert lies_in_planes(whole, phases, is_output=is_output) is wanted


STRIDED, OTHER = "brg_conv:avx2+brgconv_strided:avx2", "conv:any+ref:any"


def test_three_axes_are_left_to_strided_code() -> None:
    ones, none = (1,) * 3, (0,) * 3
    window = Window((4,) * 3, (2,) * 3, ones, none, none)
    assert not goes_by_phases(window, 16, STRIDED)
    assert goes_by_phases(window, 16, OTHER)


@pytest.mark.parametrize(
    ("kernel", "stride", "made", "implementation", "wanted"),
    [
        (4, 2, 64, STRIDED, False),
        (4, 2, 64, OTHER, True),
        (4, 2, 21, STRIDED, True),
        (16, 8, 64, STRIDED, True),
        (3, 1, 64, OTHER, True),
        (1, 2, 64, OTHER, False),  # three of four products would be with zeros
    ],
)
def test_where_it_pays(
    kernel: int, stride: int, made: int, implementation: str, wanted: bool
) -> None:
    window = Window((kernel,) * 2, (stride,) * 2, (1, 1), (0, 0), (0, 0))
    assert goes_by_phases(window, made, implementation) is wanted
