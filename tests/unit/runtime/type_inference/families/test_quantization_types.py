"""Types of quantised values, by hand, where they contradict themselves, and beside onnx's."""

from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

X, Q, SCALE = "float32[n,6,8]", "uint8[n,6,8]", "float32[]"
INT8, UINT4, FLOAT16, BFLOAT16 = 3, 21, 10, 16

CASES: list[tuple[str, list[Given], dict[str, Any], str]] = [
    ("QuantizeLinear", [X, SCALE], {}, "uint8[n,6,8]"),
    ("QuantizeLinear", [X, SCALE, "int16[]"], {}, "int16[n,6,8]"),
    ("QuantizeLinear", [X, SCALE], {"output_dtype": UINT4}, "uint4[n,6,8]"),
    ("QuantizeLinear", [X, SCALE, "int8[]"], {"output_dtype": INT8}, "int8[n,6,8]"),
    ("QuantizeLinear", [X, "float32[6]", "int8[6]"], {}, "int8[n,6,8]"),
    ("QuantizeLinear", [X, "float32[8]"], {"axis": -1}, "uint8[n,6,8]"),
    ("QuantizeLinear", [X, "float32[1]", "int8[]"], {}, "int8[n,6,8]"),
    ("QuantizeLinear", [X, "float32[k]", "int8[]"], {}, "int8[n,6,8]"),
    ("QuantizeLinear", [X, "float32[n,3,8]"], {"block_size": 2}, "uint8[n,6,8]"),
    ("QuantizeLinear", ["float32[6]", "float32[6]"], {}, "uint8[6]"),
    ("DequantizeLinear", [Q, SCALE], {}, "float32[n,6,8]"),
    ("DequantizeLinear", [Q, "float16[6]", "uint8[6]"], {}, "float16[n,6,8]"),
    ("DequantizeLinear", [Q, SCALE], {"output_dtype": BFLOAT16}, "bfloat16[n,6,8]"),
    ("DequantizeLinear", [Q, "float8e8m0[]"], {"output_dtype": FLOAT16}, "float16[n,6,8]"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_quantising_keeps_the_shape(
    op_type: str, inputs: list[Given], attributes: dict[str, Any], expected: str
) -> None:
    assert ruled(op_type, inputs, attributes) == [expected]
    assert inferred_by_onnx(op_type, inputs, attributes) == [expected]


CONTRADICTIONS: list[tuple[str, list[Given], dict[str, Any]]] = [
    ("QuantizeLinear", [X], {}),
    ("QuantizeLinear", [X, SCALE, "int8[]"], {"output_dtype": UINT4}),
    ("QuantizeLinear", [X, SCALE], {"output_dtype": 99}),
    ("QuantizeLinear", [X, "float32[5]"], {}),
    ("QuantizeLinear", [X, "float32[6]"], {"axis": 3}),
    ("QuantizeLinear", [X, "float32[6]", "int8[5]"], {}),
    ("QuantizeLinear", [X, "float32[6]", "int8[1,6]"], {}),
    ("QuantizeLinear", [X, "float32[k]", "int8[1,6]"], {}),
    ("DequantizeLinear", [Q, "float32[6]", "uint8[6,1]"], {}),
    ("DequantizeLinear", [Q, "float32[2,3,8]", "uint8[2,8,3]"], {"block_size": 2}),
    ("DequantizeLinear", [Q], {}),
    ("DequantizeLinear", [Q, SCALE, "int8[]"], {}),
    ("DequantizeLinear", [Q, SCALE], {"output_dtype": INT8}),
    ("DequantizeLinear", [Q, SCALE], {"output_dtype": "float"}),
    ("DequantizeLinear", [Q, "float8e8m0[]"], {}),
    ("DequantizeLinear", [Q, "float32[8]"], {}),
    ("DynamicQuantizeLinear", ["float16[3]"], {}),
    ("DynamicQuantizeLinear", [None], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CONTRADICTIONS)
def test_what_contradicts_itself_has_no_type(
    op_type: str, inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled(op_type, inputs, attributes) is None


def test_dynamic_quantising_gives_scale_and_zero_point() -> None:
    expected = ["uint8[n,6,8]", "float32[]", "uint8[]"]
    assert ruled("DynamicQuantizeLinear", [X], {}, outputs=3) == expected
    assert inferred_by_onnx("DynamicQuantizeLinear", [X], {}, outputs=3) == expected
