"""Quantisation: rounding to even, saturation at any distance, zero points and axes."""

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from aioinfer.runtime.graph import DType, Node, TensorType, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.operators.plain_operators import find_plain
from unit.runtime.operators.beside_peers import by_onnxruntime

NUMBERS = np.array([-np.inf, -3e38, -3e9, -1.5, -0.5, 0.5, 1.5, 2.5, 3e9, 3e38, np.inf], np.float32)


def evaluate(op_type, *inputs, dtype=np.uint8, outputs=1, **attributes):
    names = [
        None if given is None else Value(f"x{at}", TensorType(DType.of(given.dtype), given.shape))
        for at, given in enumerate(inputs)
    ]
    made = [Value(f"y{at}") for at in range(outputs)]
    made[0].type = TensorType(DType.of(np.dtype(dtype)))
    node = Node(op_type, names, made, attributes, name="n")
    return make_operator(node, {"": 21})(*inputs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_what_is_beyond_the_type_is_at_its_end_and_ties_go_to_even(dtype) -> None:
    zero = np.array(3, dtype)
    (made,) = evaluate("QuantizeLinear", NUMBERS, np.float32(1), zero, dtype=dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    assert made.tolist() == [low, low, low, 1, 3, 3, 5, 5, high, high, high]
    assert made.dtype == dtype


def test_a_scale_for_each_place_of_an_axis() -> None:
    x = np.array([[[10, 20]], [[10, 20]]], np.float32)
    scales, zeros = np.array([1, 10], np.float32), np.array([0, 100], np.uint8)
    for axis in (0, -3):
        (made,) = evaluate("QuantizeLinear", x, scales, zeros, axis=axis)
        assert made.tolist() == [[[10, 20]], [[101, 102]]]
    (made,) = evaluate("QuantizeLinear", x, scales, axis=2, output_dtype=3, dtype=np.int8)
    assert made.tolist() == [[[10, 2]], [[10, 2]]]
    assert made.dtype == np.int8


@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_zero_points_are_a_row_as_scales_are(op_type) -> None:
    x = np.ones((3, 2), np.float32 if op_type == "QuantizeLinear" else np.uint8)
    scales, zeros = np.array([1, 10], np.float32), np.zeros((1, 2), np.uint8)
    dtype = np.uint8 if op_type == "QuantizeLinear" else np.float32
    with pytest.raises(Exception, match="no row along axis 1"):
        evaluate(op_type, x, scales, zeros, dtype=dtype)


@pytest.mark.parametrize("stored", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("real", [np.float16, np.float32])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scales_of_blocks_are_those_of_onnxruntime(stored, real, axis) -> None:
    """Quotients of float16 are rounded from float32: those of onnx.reference are a quantum off."""
    chance, size = np.random.default_rng(axis + 1), 3
    x = (chance.standard_normal((4, 7, 5)) * 20).astype(real)
    blocks = [-(-length // size) if at == axis % 3 else length for at, length in enumerate(x.shape)]
    scales = (chance.random(blocks) / 2 + 0.01).astype(real)
    zeros = chance.integers(0, 20, blocks).astype(stored)
    settings = {"axis": axis, "block_size": size}
    (made,) = evaluate("QuantizeLinear", x, scales, zeros, dtype=stored, **settings)
    wanted = by_onnxruntime("QuantizeLinear", x, scales, zeros, **settings)
    np.testing.assert_array_equal(made, wanted)
    (back,) = evaluate("DequantizeLinear", made, scales, zeros, dtype=real, **settings)
    wanted = by_onnxruntime("DequantizeLinear", made, scales, zeros, **settings)
    assert back.dtype == real
    np.testing.assert_array_equal(back, wanted)


@pytest.mark.parametrize("shape", [(2, 1), (2, 4), (2,)])
def test_scales_that_are_not_those_of_blocks_are_refused(shape) -> None:
    x, scales = np.ones((2, 4), np.float32), np.ones(shape, np.float32)
    with pytest.raises(ValueError, match=r"\(2, 2\) are in blocks of 2"):
        evaluate("QuantizeLinear", x, scales, np.zeros(shape, np.uint8), axis=1, block_size=2)


@pytest.mark.parametrize("shape", [(0,), (3,), ()])
def test_the_scale_of_zeros_is_one(shape) -> None:
    made, scale, zero = evaluate("DynamicQuantizeLinear", np.zeros(shape, np.float32), outputs=3)
    assert (made.shape, scale.tolist(), zero.tolist()) == (shape, 1.0, 0)
    assert [item.dtype for item in (made, scale, zero)] == [np.uint8, np.float32, np.uint8]


def test_the_range_of_a_dynamic_quantisation_holds_zero() -> None:
    x = np.array([-1, 0, 4.1], np.float32)
    made, scale, zero = evaluate("DynamicQuantizeLinear", x, outputs=3)
    assert zero == 50
    assert made.tolist() == [0, 50, 255]
    np.testing.assert_allclose(scale, 0.02, rtol=1e-6)
    made, _, zero = evaluate("DynamicQuantizeLinear", x + 2, outputs=3)
    assert zero == 0
    assert made.tolist() == [42, 84, 255]


def multiply(a, b, factor, zero):
    """Give the product of matrices whose zero points are 0, times a factor."""
    none, one = np.array(0, a.dtype), np.float32(1)
    scale = np.float32(1 / factor)
    return evaluate("QLinearMatMul", a, one, none, b, one, none, scale, zero, dtype=zero.dtype)[0]


def test_a_quantised_product_saturates() -> None:
    a = np.array([[100], [-100]], np.int8)
    made = multiply(a, np.array([[100, -1]], np.int8), 1.0, np.array(7, np.int8))
    assert made.tolist() == [[127, -93], [-128, 107]]


def test_a_quantised_product_is_rounded_before_its_zero_point_is_added() -> None:
    a = np.array([[1, 3]], np.uint8).T
    made = multiply(a, np.array([[1]], np.uint8), 0.5, np.array(1, np.uint8))
    assert made.tolist() == [[1], [3]], "0.5 and 1.5 become 0 and 2"


def test_a_quantised_product_may_have_scales_by_row_and_column() -> None:
    a, b = np.full((2, 3), 2, np.uint8), np.full((3, 2), 1, np.uint8)
    zero, rows = np.array(0, np.uint8), np.array([1, 2], np.float32)
    columns = np.array([1, 10], np.float32)
    zeros = np.zeros(2, np.uint8)
    made = evaluate("QLinearMatMul", a, rows, zeros, b, columns, zeros, np.float32(1), zero)[0]
    assert made.tolist() == [[6, 60], [12, 120]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
@pytest.mark.parametrize("kind", ["number", "axis", "no zero point", "float16"])
def test_dequantised_as_onnx_reference_has_it(dtype: Any, kind: str) -> None:
    generator = np.random.default_rng(3)
    x = generator.integers(0, 127, (2, 3, 4)).astype(dtype)
    scale = generator.random(3 if kind == "axis" else ()).astype(np.float32)
    scale = scale.astype(np.float16) if kind == "float16" else scale
    zero = generator.integers(0, 9, scale.shape).astype(dtype)
    inputs = [x, scale] if kind == "no zero point" else [x, scale, zero]
    names = ["x", "scale", "zero"][: len(inputs)]
    values = [
        Value(name, TensorType(DType.of(item.dtype), item.shape))
        for name, item in zip(names, inputs, strict=True)
    ]
    node = Node("DequantizeLinear", values, [Value("y")], {"axis": 1}, name="n")
    function = find_plain(node, {"": 21})
    assert function is not None
    (made,) = make_operator(node, {"": 21})(*inputs)
    proto = helper.make_node("DequantizeLinear", names, ["y"], axis=1)
    free = [helper.make_empty_tensor_value_info(name) for name in (*names, "y")]
    graph = helper.make_graph([proto], "g", free[:-1], free[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (wanted,) = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made, wanted)
