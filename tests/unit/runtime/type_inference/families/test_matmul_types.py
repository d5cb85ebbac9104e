"""Types of matmuls and of Einsum, by hand and beside onnx's."""

import random
from typing import Any

import pytest

from unit.runtime.type_inference.typed_nodes import Given, inferred_by_onnx, ruled

PRODUCTS: list[tuple[str, str, str | None]] = [
    ("[3,4]", "[4,5]", "[3,5]"),
    ("[n,12,s,64]", "[n,12,64,s]", "[n,12,s,s]"),
    ("[n,s,384]", "[384,1536]", "[n,s,1536]"),
    ("[4]", "[4]", "[]"),
    ("[4]", "[2,4,5]", "[2,5]"),
    ("[2,3,4]", "[4]", "[2,3]"),
    ("[1,3,4]", "[b,4,5]", "[b,3,5]"),
    ("[2,3,k]", "[b,4,5]", "[2,3,5]"),
    ("[a,3,?]", "[b,4,?]", "[?,3,?]"),
    ("[3,4]", "[5,6]", None),
    ("[4]", "[5,6]", None),
    ("[2,3,4]", "[3,4,5]", None),
    ("[]", "[4]", None),
    ("[4]", "[]", None),
]


@pytest.mark.parametrize(("a", "b", "expected"), PRODUCTS)
def test_a_matmul_sums_over_the_inner_axis(a: str, b: str, expected: str | None) -> None:
    found = ruled("MatMul", [f"float32{a}", f"float32{b}"], {})
    assert found == (None if expected is None else [f"float32{expected}"])
    found = ruled("MatMulInteger", [f"uint8{a}", f"int8{b}"], {})
    assert found == (None if expected is None else [f"int32{expected}"])
    scale = "float32[]"
    given = [f"uint8{a}", scale, "uint8[]", f"int8{b}", scale, "int8[]", scale, "int8[]"]
    found = ruled("QLinearMatMul", given, {})
    assert found == (None if expected is None else [f"int8{expected}"])


def test_factors_of_different_types_are_a_contradiction() -> None:
    assert ruled("MatMul", ["float32[3,4]", "float16[4,5]"], {}) is None
    assert ruled("Gemm", ["float32[3,4]", "float16[4,5]"], {}) is None
    assert ruled("MatMul", ["float32[3,4]"], {}) is None
    scale = "float32[]"
    given = ["uint8[3,4]", scale, "int8[]", "int8[4,5]", scale, "int8[]", scale, "int8[]"]
    assert ruled("QLinearMatMul", given, {}) is None


GEMMS: list[tuple[list[str], dict[str, int], str | None]] = [
    (["[n,4]", "[4,5]"], {}, "[n,5]"),
    (["[n,4]", "[5,4]", "[5]"], {"transB": 1}, "[n,5]"),
    (["[4,n]", "[5,4]", "[]"], {"transA": 1, "transB": 1}, "[n,5]"),
    (["[4,3]", "[4,5]", "[3,1]"], {"transA": 1}, "[3,5]"),
    (["[n,4]", "[5,4]"], {}, None),
    (["[n,4]", "[4,5]", "[4]"], {}, None),
    (["[n,4]", "[4,5]", "[1,1,5]"], {}, None),
    (["[2,n,4]", "[4,5]"], {}, None),
]


@pytest.mark.parametrize(("shapes", "attributes", "expected"), GEMMS)
def test_gemm_multiplies_two_matrices(
    shapes: list[str], attributes: dict[str, int], expected: str | None
) -> None:
    found = ruled("Gemm", [f"float32{shape}" for shape in shapes], attributes)
    assert found == (None if expected is None else [f"float32{expected}"])


SUMS: list[tuple[str, list[str], str | None]] = [
    ("ij,jk->ik", ["[3,4]", "[4,5]"], "[3,5]"),
    ("bij, bjk -> bik", ["[b,3,4]", "[2,4,k]"], "[2,3,k]"),
    ("...ij,...jk->...ik", ["[n,1,3,4]", "[n,7,4,5]"], "[n,7,3,5]"),
    ("ij...->...", ["[3,4,n,6]"], "[n,6]"),
    ("...ii->...i", ["[n,3,3]"], "[n,3]"),
    ("ij,jk", ["[3,4]", "[4,5]"], "[3,5]"),
    ("ba", ["[3,4]"], "[4,3]"),
    ("...b,a...", ["[n,3]", "[4,n]"], "[n,4,3]"),
    ("i,i->", ["[n]", "[m]"], "[]"),
    ("ij,jk->il", ["[3,4]", "[4,5]"], None),
    ("ij,jk->ii", ["[3,4]", "[4,5]"], None),
    ("ij,jk->ik", ["[3,4]", "[5,6]"], None),
    ("ij,jk->ik", ["[3,4]"], None),
    ("ijk->i", ["[3,4]"], None),
    ("i->i", ["[3,4]"], None),
    ("ij...->i", ["[3]"], None),
    ("i1->i", ["[3,4]"], None),
]


@pytest.mark.parametrize(("equation", "shapes", "expected"), SUMS)
def test_each_letter_of_an_equation_is_one_length(
    equation: str, shapes: list[str], expected: str | None
) -> None:
    inputs = [f"float64{shape}" for shape in shapes]
    found = ruled("Einsum", inputs, {"equation": equation})
    assert found == (None if expected is None else [f"float64{expected}"])


def test_an_equation_has_to_be_there() -> None:
    assert ruled("Einsum", ["float32[3]"], {}) is None


@pytest.mark.parametrize("seed", range(60))
def test_random_matmuls_are_what_onnx_makes_of_them(seed: int) -> None:
    chance = random.Random(seed)
    op_type = chance.choice(["MatMul", "Gemm", "Einsum"])
    rows, depth, columns = (chance.randint(1, 4) for _ in range(3))
    a, b = [rows, depth], [depth, columns]
    attributes: dict[str, Any] = {}
    if op_type == "Gemm":
        attributes = {"transA": chance.randint(0, 1), "transB": chance.randint(0, 1)}
        a, b = a[:: 1 - 2 * attributes["transA"]], b[:: 1 - 2 * attributes["transB"]]
    else:
        batch = [chance.randint(1, 4) for _ in range(chance.randint(0, 3))]
        a = [chance.choice([1, dim]) for dim in batch] + a
        b = batch + b
    if op_type == "MatMul":
        b = b[chance.randint(0, len(b) - 2) :]
        a = chance.choice([a, a[-1:]])
    if op_type == "Einsum":
        attributes["equation"] = chance.choice(["...ij,...jk->...ik", "...ij,...jk"])
    inputs = ["float32" + str(shape).replace(" ", "") for shape in (a, b)]
    assert ruled(op_type, inputs, attributes) == inferred_by_onnx(op_type, inputs, attributes)


@pytest.mark.parametrize("factors", [["uint32[2,3]", "int8[3,4]"], ["int8[2,3]", "int16[3,4]"]])
def test_integer_factors_have_8_bits(factors: list[Given]) -> None:
    assert ruled("MatMulInteger", factors, {}) is None
