"""Types of elementwise operators, by hand and beside onnx's."""

import random
from typing import Any

import pytest

from unit.runtime.type_inference.beside_onnx import assert_like_onnx
from unit.runtime.type_inference.typed_nodes import ruled

CASES: list[tuple[str, list[str | None], dict[str, Any], list[str] | None]] = [
    ("Relu", ["float32[n,3,?]"], {}, ["float32[n,3,?]"]),
    ("Relu", [], {}, None),
    ("Clip", ["int64[4]", None, "int64[]"], {}, ["int64[4]"]),
    ("PRelu", ["float32[n,3,4]", "float32[3,1]"], {}, ["float32[n,3,4]"]),
    ("CumSum", ["float32[n,3]", "int32[]"], {}, ["float32[n,3]"]),
    ("Softmax", ["float32[n,3]"], {"axis": -2}, ["float32[n,3]"]),
    ("Softmax", ["float32[n,3]"], {"axis": 2}, None),
    ("Softmax", ["int32[n,3]"], {}, None),
    ("LogSoftmax", ["int64[n,3]"], {}, None),
    ("Hardmax", ["int32[n,3]"], {}, ["int32[n,3]"]),
    ("Trilu", ["float32[n,n]"], {"upper": 0}, ["float32[n,n]"]),
    ("Trilu", ["float32[n]"], {}, None),
    ("Dropout", ["float16[n,3]"], {}, ["float16[n,3]", "bool[n,3]"]),
    ("IsNaN", ["float16[n]"], {}, ["bool[n]"]),
    ("Add", ["float32[n,1,4]", "float32[3,1]"], {}, ["float32[n,3,4]"]),
    ("Add", ["float32[n]", "float32[m]"], {}, ["float32[?]"]),
    ("Add", ["float32[2]", "float32[3]"], {}, None),
    ("Add", ["float32[2]", "int32[2]"], {}, None),
    ("Add", ["float32[2]", None], {}, None),
    ("Mod", ["float32[n]", "float32[]"], {"fmod": 1}, ["float32[n]"]),
    ("Mod", ["float32[n]", "float32[]"], {}, None),
    ("Mod", ["uint8[n]", "uint8[]"], {}, ["uint8[n]"]),
    ("Sum", ["float32[2,1]"] * 2 + ["float32[n]"], {}, ["float32[2,n]"]),
    ("Less", ["int64[n]", "int64[]"], {}, ["bool[n]"]),
    ("And", ["bool[n]", "bool[n]"], {}, ["bool[n]"]),
    ("And", ["int64[n]", "int64[n]"], {}, None),
    ("Pow", ["float32[n,3]", "int64[]"], {}, ["float32[n,3]"]),
    ("Pow", ["float32[2]", "int64[3]"], {}, None),
    ("Where", ["bool[n,1]", "int64[]", "int64[1,4]"], {}, ["int64[n,4]"]),
    ("Where", ["bool[n]", "int64[]", "int32[]"], {}, None),
    ("Where", ["int64[n]", "int64[]", "int64[]"], {}, None),
    ("Where", ["bool[2]", "int64[3]", "int64[]"], {}, None),
    ("Cast", ["float32[n,?]"], {"to": 7}, ["int64[n,?]"]),
    ("Cast", ["float32[n]"], {"to": 0}, None),
    ("Cast", ["float32[n]"], {}, None),
    ("CastLike", ["float32[n,3]", "int8[5]"], {}, ["int8[n,3]"]),
    ("CastLike", ["float32[n,3]"], {}, None),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "expected"), CASES)
def test_a_result_has_the_shape_of_its_operands(
    op_type: str, inputs: list[str], attributes: dict[str, Any], expected: list[str] | None
) -> None:
    assert ruled(op_type, inputs, attributes, 2 if op_type == "Dropout" else 1) == expected


UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish Hardmax Identity IsInf IsNaN LeakyRelu Log LogSoftmax Mish Neg Reciprocal Relu Round
    Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
"""
BINARY = {
    "float32": "Add Div Max Mean Min Mul Pow Sub Sum Equal Greater GreaterOrEqual Less LessOrEqual",
    "bool": "And Or Xor",
    "int32": "BitwiseAnd BitwiseOr BitwiseXor Mod",
    "uint8": "BitShift",
}
BINARY_TYPES = {name: dtype for dtype, names in BINARY.items() for name in names.split()}


def typed(dtype: str, shape: list[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def broadcastable(chance: random.Random, shape: list[int]) -> list[int]:
    start = chance.randint(0, len(shape))
    return [chance.choice((1, dim)) for dim in shape[start:]]


@pytest.mark.parametrize("op_type", UNARY.split())
def test_unary_operators_are_typed_as_onnx_types_them(op_type: str) -> None:
    for shape in ([3], [2, 3, 4]):
        assert_like_onnx(op_type, [typed("float32", shape)], {})


@pytest.mark.parametrize("op_type", BINARY_TYPES)
def test_broadcasting_operators_are_typed_as_onnx_types_them(op_type: str) -> None:
    chance = random.Random(op_type)
    dtype = BINARY_TYPES[op_type]
    attributes = {"direction": "LEFT"} if op_type == "BitShift" else {}
    for _ in range(20):
        shape = [chance.randint(0, 4) for _ in range(chance.randint(0, 4))]
        given = [typed(dtype, broadcastable(chance, shape)) for _ in range(2)]
        assert_like_onnx(op_type, given, attributes)


def test_choices_casts_and_operators_with_parameters_are_typed_as_onnx_types_them() -> None:
    chance = random.Random(7)
    for _ in range(20):
        shape = [chance.randint(0, 4) for _ in range(chance.randint(2, 4))]
        given = [broadcastable(chance, shape) for _ in range(2)]
        branches = [typed("float16", item) for item in given]
        assert_like_onnx("Where", [typed("bool", shape), *branches], {})
        for to in (1, 6, 9, 16):
            assert_like_onnx("Cast", [typed("float16", shape)], {"to": to})
        assert_like_onnx("CastLike", [typed("float16", shape), "int32[]"], {})
        assert_like_onnx("Clip", [typed("float32", shape), None, "float32[]"], {})
        assert_like_onnx("CumSum", [typed("float32", shape), "int64[]"], {})
        assert_like_onnx("CumProd", [typed("float32", shape), "int64[]"], {})
        assert_like_onnx("Dropout", [typed("float32", shape)], {}, 2)
        assert_like_onnx("PRelu", [typed("float32", shape), "float32[1]"], {})
        assert_like_onnx("Trilu", [typed("bool", shape)], {})
        assert_like_onnx("BitwiseNot", [typed("uint8", shape)], {})
        assert_like_onnx("Not", [typed("bool", shape)], {})
