"""Types of what looks into images: by hand, where it contradicts itself, and as onnx has it."""

from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

X, ROIS = "float32[2,3,8,9]", "float32[r,4]"
SIZE = {"output_height": 5, "output_width": 6}

CASES: list[tuple[str, list[Given], dict[str, Any], str]] = [
    ("GridSample", [X, "float32[2,5,6,2]"], {}, "float32[2,3,5,6]"),
    ("GridSample", [X, "float16[2,h,w,2]"], {}, "float32[2,3,h,w]"),
    ("GridSample", ["float32[2,3,7,8,9]", "float32[2,4,5,6,3]"], {}, "float32[2,3,4,5,6]"),
    ("RoiAlign", [X, ROIS, "int64[r]"], SIZE, "float32[r,3,5,6]"),
    ("RoiAlign", [X, "float32[?,4]", "int64[7]"], {}, "float32[7,3,1,1]"),
    ("MaxRoiPool", [X, "float32[r,5]"], {"pooled_shape": [5, 6]}, "float32[r,3,5,6]"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_places_and_channels_make_the_result(
    op_type: str, inputs: list[Given], attributes: dict[str, Any], expected: str
) -> None:
    assert ruled(op_type, inputs, attributes) == [expected]
    assert inferred_by_onnx(op_type, inputs, attributes) == [expected]


def test_one_batch_is_told_by_both() -> None:
    assert ruled("GridSample", ["float32[n,3,8,9]", "float32[2,5,6,2]"], {}) == ["float32[2,3,5,6]"]


CONTRADICTIONS: list[tuple[str, list[Given], dict[str, Any]]] = [
    ("GridSample", [X], {}),
    ("GridSample", [X, "float32[2,5,6,3]"], {}),
    ("GridSample", [X, "float32[3,5,6,2]"], {}),
    ("GridSample", [X, "float32[2,5,2]"], {}),
    ("RoiAlign", [X, ROIS], SIZE),
    ("RoiAlign", [X, "float32[3,5]", "int64[3]"], SIZE),
    ("RoiAlign", [X, "float32[3,4]", "int64[2]"], SIZE),
    ("RoiAlign", [X, ROIS, "int64[r,1]"], SIZE),
    ("RoiAlign", [X, ROIS, "int64[r]"], {"output_height": 0}),
    ("RoiAlign", ["float32[2,3,8]", ROIS, "int64[r]"], SIZE),
    ("MaxRoiPool", [X, "float32[r,5]"], {}),
    ("MaxRoiPool", [X, "float32[r,4]"], {"pooled_shape": [5, 6]}),
    ("MaxRoiPool", [X, "float32[r,5]"], {"pooled_shape": [5]}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CONTRADICTIONS)
def test_what_contradicts_itself_has_no_type(
    op_type: str, inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled(op_type, inputs, attributes) is None
