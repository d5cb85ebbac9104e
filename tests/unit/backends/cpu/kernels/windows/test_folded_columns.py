"""Transposed convolutions as a matmul whose columns are folded equal REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.windows import transposed_convolution
from aioinfer.backends.cpu.kernels.windows.folded_columns import goes_by_columns
from aioinfer.runtime.lowering.window import Window
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import (
    assert_batches_of_a_run_and_of_a_blob,
    assert_same_as_reference,
    model_of,
    run,
)
from unit.backends.cpu.kernels.stepping import implementations

AVX2, AVX512 = 0x7, 0x27
FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "overlapping": ((2, 5, 4, 6), (5, 7, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "one element": ((3, 5, 1, 1), (5, 7, 4, 3), {}),
    "one element, cut": ((1, 5, 1, 1), (5, 7, 4, 3), {"strides": [3, 2], "pads": [1, 2, 1, 0]}),
    "uneven": ((1, 4, 5, 3), (4, 2, 3, 5), {"strides": [2, 3], "pads": [0, 2, 1, 1]}),
    "longer": ((1, 4, 5, 3), (4, 9, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}),
    "dilated": ((1, 4, 5, 6), (4, 3, 3, 2), {"strides": [2, 1], "dilations": [3, 2]}),
    "with gaps": ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": [4, 1], "output_padding": [3, 0]}),
    "wanted size": ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2], "output_shape": [10, 13]}),
    "one axis": ((2, 4, 9), (4, 6, 5), {"strides": [3], "pads": [2, 1]}),
    "many channels": ((1, 64, 4, 4), (64, 48, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "few channels": ((1, 16, 9, 9), (16, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
}


def transposed(name: str, *after: Any, dynamic: bool = False) -> tuple[Any, dict[str, np.ndarray]]:
    shape, weights, attributes = FORMS[name]
    inputs = {"x": numbers(*shape) - 1}
    constants = {"w": numbers(*weights) - 2, "b": numbers(weights[1])}
    made = "c" if after else "y"
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], [made], **attributes)
    return model_of([node, *after], inputs, ("y",), constants, dynamic=dynamic), inputs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_same_as_reference(core: Core, form: str, dynamic: bool) -> None:
    model, inputs = transposed(form, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=2)


@pytest.fixture
def _by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take them whatever the processor."""
    monkeypatch.setattr(transposed_convolution, "goes_by_columns", lambda *_: True)


@pytest.mark.usefixtures("_by_columns")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Add"])
def test_what_follows_is_applied_to_the_sums(core: Core, form: str, activation: str) -> None:
    other = ["b"] * (activation == "Add" and len(FORMS[form][0]) == 3)
    after = helper.make_node(activation, ["c", *other], ["y"])
    if activation == "Add":
        after = helper.make_node("Add", ["c", "c"], ["y"])
    model, inputs = transposed(form, after)
    assert ("ConvTranspose", "native:fold_columns") in [
        (op.rpartition(":")[2], name) for op, name in implementations(core, model, inputs)
    ]
    assert_same_as_reference(core, model, inputs)


@pytest.mark.usefixtures("_by_columns")
def test_threads_change_no_bit(core: Core) -> None:
    shape, weights = (2, 64, 16, 16), (64, 24, 4, 4)
    inputs, constants = {"x": numbers(*shape)}, {"w": numbers(*weights)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1] * 4)
    model = model_of([node], inputs, ("y",), constants)
    one, two = (
        run(core, model, "CPU", inputs, INFERENCE_NUM_THREADS=count)["y"] for count in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.usefixtures("_by_columns")
def test_batches_that_come_with_the_run_and_a_blob_that_has_them(core: Core) -> None:
    model, inputs = transposed("overlapping", dynamic=True)
    assert_batches_of_a_run_and_of_a_blob(core, model, inputs["x"])


def window(kernel: int, stride: int, axes: int = 2) -> Window:
    ones, none = (1,) * axes, (0,) * axes
    return Window((kernel,) * axes, (stride,) * axes, ones, none, none)


@pytest.mark.parametrize(
    ("size", "stride", "length", "channels", "instructions", "wanted"),
    [
        (4, 2, 8, 32, AVX2, True),
        (4, 2, 8, 32, AVX512, False),
        (3, 2, 8, 3, AVX512, True),  # phases would be filled up with zeros
        (3, 2, 8, 3, AVX2, True),
        (4, 2, 8, 3, AVX512, False),  # fewer than a vector has lanes: phases are as many
        (4, 2, 8, 3, AVX2, False),
        (2, 2, 8, 32, AVX2, False),  # nothing overlaps, and oneDNN is as fast
        (2, 2, 8, 3, AVX512, False),
        (3, 1, 8, 32, AVX2, False),
        (4, 1, 1, 32, AVX2, True),
        (4, 1, 1, 32, AVX512, True),
        (4, 2, 64, 32, AVX2, False),  # columns that no cache has
    ],
)
def test_where_it_pays(
    size: int, stride: int, length: int, channels: int, instructions: int, wanted: bool
) -> None:
    weights, source = (32, channels, size, size), (1, 32, length, length)
    assert goes_by_columns(window(size, stride), weights, source, instructions) is wanted


def test_three_axes_are_left_to_onednn() -> None:
    assert not goes_by_columns(window(4, 2, 3), (8, 8, 4, 4, 4), (1, 8, 2, 2, 2), AVX2)
