"""Types of shapes and of tensors that are made from one, by hand and beside onnx's."""

from typing import Any

import numpy as np
import pytest

from unit.runtime.type_inference.beside_onnx import assert_like_onnx
from unit.runtime.type_inference.typed_nodes import Given, ruled

HALF = np.array([1], np.float16)
CASES: list[tuple[str, list[Given], dict[str, Any], str | None]] = [
    ("Shape", ["float32[n,3,?]"], {}, "int64[3]"),
    ("Shape", ["float32[n,3,?]"], {"start": 1}, "int64[2]"),
    ("Shape", ["float32[n,3,?]"], {"start": -1, "end": 7}, "int64[1]"),
    ("Shape", ["float32[n,3,?]"], {"start": 2, "end": 1}, "int64[0]"),
    ("Shape", ["float32[n]"], {"start": "x"}, None),
    ("Size", ["float32[n,3]"], {}, "int64[]"),
    ("Constant", [], {"value": np.zeros((2, 3), np.int8)}, "int8[2,3]"),
    ("ConstantOfShape", [np.array([2, 3])], {}, "float32[2,3]"),
    ("ConstantOfShape", [np.array([], np.int64)], {"value": HALF}, "float16[]"),
    ("ConstantOfShape", [np.array([-1])], {}, None),
    ("ConstantOfShape", ["int64[2]"], {}, "float32[?,?]"),
    ("ConstantOfShape", ["int64[?]"], {}, None),
    ("Range", [np.array(2), np.array(9), np.array(3)], {}, "int64[3]"),
    ("Range", [np.array(2), np.array(-3), np.array(-1)], {}, "int64[5]"),
    ("Range", [np.array(2), np.array(1), np.array(1)], {}, "int64[0]"),
    ("Range", [np.array(2), np.array(9), np.array(0)], {}, None),
    ("Range", [np.array(2), "int64[]", np.array(1)], {}, "int64[?]"),
    ("Range", [np.array(-1e308), np.array(1e308), np.array(1e-10)], {}, None),
    ("Range", [np.array(0.0), np.array(1e300), np.array(1.0)], {}, None),
    ("Range", [np.array(1e308), np.array(-1e308), np.array(1e-10)], {}, None),
    ("Range", [np.array(-(2**63)), np.array(2**63 - 1), np.array(1)], {}, None),
    ("EyeLike", ["float32[n,3]"], {}, "float32[n,3]"),
    ("EyeLike", ["float32[n,3]"], {"dtype": 7}, "int64[n,3]"),
    ("EyeLike", ["float32[n,3]"], {"dtype": 99}, None),
    ("EyeLike", ["float32[n,3]"], {"dtype": np.array([7])}, None),
    ("EyeLike", ["float32[n]"], {}, None),
    ("Size", [], {}, None),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_shapes_make_tensors(
    op_type: str, inputs: list[Given], attributes: dict[str, Any], expected: str | None
) -> None:
    assert ruled(op_type, inputs, attributes) == (None if expected is None else [expected])


def test_shapes_are_typed_as_onnx_types_them() -> None:
    for start in range(-5, 6):
        for end in range(-5, 6):
            assert_like_onnx("Shape", ["float32[2,3,4]"], {"start": start, "end": end})
    assert_like_onnx("Size", ["float32[2,3]"], {})
    assert_like_onnx("EyeLike", ["float32[2,3]"], {"dtype": 11})
    assert_like_onnx("ConstantOfShape", [np.array([4, 0, 2])], {})


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
def test_ranges_are_typed_as_onnx_types_them(dtype: type) -> None:
    for start, limit, delta in ((0, 10, 3), (10, 0, -3), (0, 0, 1), (5, 2, 1), (-3, 4, 1)):
        bounds: list[Given] = [np.array(item, dtype) for item in (start, limit, delta)]
        assert_like_onnx("Range", bounds, {})
    if np.issubdtype(dtype, np.floating):
        for limit, delta in ((1, 0.1), (0.7, 0.3), (2, 0.25)):
            bounds = [np.array(item, dtype) for item in (0, limit, delta)]
            assert_like_onnx("Range", bounds, {})
