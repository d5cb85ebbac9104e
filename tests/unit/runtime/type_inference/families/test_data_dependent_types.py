"""Types of what is as long as the data makes it."""

from typing import Any

import pytest

from unit.runtime.type_inference.beside_onnx import assert_like_onnx
from unit.runtime.type_inference.typed_nodes import Given, ruled

CASES: list[tuple[str, list[Given], dict[str, Any], list[str] | None]] = [
    ("NonZero", ["float32[n,3]"], {}, ["int64[2,?]"]),
    ("NonZero", ["bool[]"], {}, ["int64[0,?]"]),
    ("NonMaxSuppression", ["float32[1,n,4]", "float32[1,c,n]"], {}, ["int64[?,3]"]),
    ("NonMaxSuppression", ["float32[1,n]", "float32[1,c,n]"], {}, None),
    ("NonMaxSuppression", ["float32[1,n,4]", "float64[1,c,n]"], {}, None),
    ("Compress", ["int8[n,3]", "bool[k]"], {}, ["int8[?]"]),
    ("Compress", ["int8[n,3]", "bool[k]"], {"axis": -2}, ["int8[?,3]"]),
    ("Compress", ["int8[n,3]", "bool[k]"], {"axis": 2}, None),
    ("Compress", ["int8[n,3]", "int64[k]"], {}, None),
    ("Compress", ["int8[n,3]", "bool[k,1]"], {}, None),
    ("Unique", ["int64[n,3]"], {}, ["int64[?]", "int64[?]", "int64[?]", "int64[?]"]),
    ("Unique", ["float64[n,3]"], {"axis": 1}, ["float64[n,?]", *["int64[?]"] * 3]),
    ("Unique", ["float64[n,3]"], {"axis": "x"}, None),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_as_many_elements_as_the_data_makes(
    op_type: str, inputs: list[Given], attributes: dict[str, Any], expected: list[str] | None
) -> None:
    outputs = 1 if expected is None else len(expected)
    assert ruled(op_type, inputs, attributes, outputs) == expected


def test_an_output_that_is_not_asked_for_has_no_type() -> None:
    assert ruled("Unique", ["int64[5]"], {}, 2) == ["int64[?]", "int64[?]"]


def test_elements_are_typed_as_onnx_types_them() -> None:
    assert_like_onnx("NonZero", ["float32[2,3]"], {})
    assert_like_onnx("Compress", ["float32[2,3]", "bool[3]"], {"axis": 1})
    assert_like_onnx("Compress", ["float32[2,3]", "bool[3]"], {})
    assert_like_onnx("NonMaxSuppression", ["float32[1,6,4]", "float32[1,2,6]"], {})
    assert_like_onnx("Unique", ["float32[2,3]"], {"axis": 0})
