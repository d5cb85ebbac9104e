"""Types of random tensors: by hand, where they contradict themselves, and as onnx has them."""

from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

FLOAT16, INT64 = 10, 7

CASES: list[tuple[str, list[Given], dict[str, Any], str]] = [
    ("RandomNormal", [], {"shape": [2, 3]}, "float32[2,3]"),
    ("RandomUniform", [], {"shape": [2, 3], "dtype": FLOAT16}, "float16[2,3]"),
    ("RandomNormalLike", ["float64[n,3]"], {}, "float64[n,3]"),
    ("RandomUniformLike", ["int64[n,3]"], {"dtype": FLOAT16}, "float16[n,3]"),
    ("Bernoulli", ["float32[n]"], {"dtype": INT64}, "int64[n]"),
    ("Multinomial", ["float32[n,9]"], {"sample_size": 4}, "int32[n,4]"),
    ("Multinomial", ["float32[n,9]"], {"dtype": INT64}, "int64[n,1]"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_the_shape_is_told_or_another_tensors(
    op_type: str, inputs: list[Given], attributes: dict[str, Any], expected: str
) -> None:
    assert ruled(op_type, inputs, attributes) == [expected]
    assert inferred_by_onnx(op_type, inputs, attributes) == [expected]


CONTRADICTIONS: list[tuple[str, list[Given], dict[str, Any]]] = [
    ("RandomNormal", [], {}),
    ("RandomNormal", [], {"shape": [2, -3]}),
    ("RandomNormal", [], {"shape": [2], "dtype": 99}),
    ("RandomNormalLike", [], {}),
    ("Bernoulli", ["float32[n]"], {"dtype": 99}),
    ("Multinomial", ["float32[n]"], {}),
    ("Multinomial", ["float32[n,9]"], {"dtype": FLOAT16}),
    ("Multinomial", ["float32[n,9]"], {"sample_size": -1}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CONTRADICTIONS)
def test_what_contradicts_itself_has_no_type(
    op_type: str, inputs: list[Given], attributes: dict[str, Any]
) -> None:
    assert ruled(op_type, inputs, attributes) is None
