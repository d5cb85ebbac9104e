"""Types of spectra: by hand, where it contradicts itself, and where onnx is wrong."""

from typing import Any

import numpy as np
import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

STEP, WINDOW = np.array(8), "float32[16]"

CASES: list[tuple[list[Given], dict[str, Any], str]] = [
    (["float32[1,128,1]", STEP, WINDOW], {}, "float32[1,15,9,2]"),
    (["float32[n,128,2]", STEP, WINDOW], {"onesided": 0}, "float32[n,15,16,2]"),
    (["float32[n,128]", STEP, None, np.array(15)], {}, "float32[n,15,8,2]"),
    (["float32[n,128,1]", "int64[]", WINDOW], {}, "float32[n,?,9,2]"),
    (["float32[n,128,1]", STEP, None, "int64[]"], {}, "float32[n,?,?,2]"),
    (["float32[n,t,1]", STEP, WINDOW], {}, "float32[n,?,9,2]"),
    (["float32[n,10,1]", STEP], {}, "float32[n,1,6,2]"),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), CASES)
def test_frames_and_frequencies_make_the_result(
    inputs: list[Given], attributes: dict[str, Any], expected: str
) -> None:
    assert ruled("STFT", inputs, attributes) == [expected]


SPECTRA: list[tuple[list[Given], dict[str, Any], str]] = [
    (["float32[n,5,1]"], {}, "float32[n,5,2]"),
    (["float64[n,t,2]", None, np.array(-2)], {"inverse": 1}, "float64[n,t,2]"),
    (["float32[4,5,6,1]", None, np.array(0)], {"onesided": 1}, "float32[3,5,6,2]"),
    (["float32[4,5,6,1]", np.array(8), np.array(1)], {"onesided": 1}, "float32[4,5,6,2]"),
    (["float32[4,5,6,1]", np.array(9), np.array(1)], {}, "float32[4,9,6,2]"),
    (["float32[4,5,6,2]"], {"onesided": 1, "inverse": 1}, "float32[4,5,10,1]"),
    (["float32[4,t,2]", np.array(7)], {"onesided": 1, "inverse": 1}, "float32[4,7,1]"),
    (["float32[4,t,1]"], {"onesided": 1}, "float32[4,?,2]"),
    (["float32[4,5,1]", "int64[]"], {}, "float32[4,?,2]"),
    (["float32[4,5,1]", None, "int64[]"], {}, "float32[?,?,2]"),
    (["float32[4,5,6,1]"], {"axis": 1, "onesided": 1}, "float32[4,3,6,2]"),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), SPECTRA)
def test_an_axis_of_signals_becomes_one_of_frequencies(
    inputs: list[Given], attributes: dict[str, Any], expected: str
) -> None:
    assert ruled("DFT", inputs, attributes) == [expected]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        (["float32[4]"], {}),
        (["float32[4,5,3]"], {}),
        (["float32[4,5,1]", None, np.array(-1)], {}),
        (["float32[4,5,1]", None, np.array(3)], {}),
        (["float32[4,5,1]", np.array(0)], {}),
        (["float32[4,5,1]"], {"axis": 2}),
    ],
)
def test_a_spectrum_that_contradicts_itself_has_no_type(
    inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled("DFT", inputs, attributes) is None


def test_onnx_still_takes_real_signals_for_complex_ones() -> None:
    """Where this fails, the rule may be compared with onnx's inference."""
    inputs, attributes, _ = CASES[0]
    assert inferred_by_onnx("STFT", inputs, attributes) == ["float32[1,15,16,2]"]


@pytest.mark.parametrize(
    "inputs",
    [
        ["float32[128]", STEP, WINDOW],
        ["float32[1,128,3]", STEP, WINDOW],
        ["float32[1,128,1]", np.array(0), WINDOW],
        ["float32[1,128,1]", STEP, "float32[4,4]"],
        ["float32[1,15,1]", STEP, WINDOW],
        ["float32[1,15,1]", STEP, None, np.array(0)],
    ],
)
def test_what_contradicts_itself_has_no_type(inputs: list[Given]) -> None:
    assert ruled("STFT", inputs, {}) is None
