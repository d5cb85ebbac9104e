"""Unique beside onnxruntime: of every kind of axis, in both orders, with all of its outputs."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator

NUMBERS = np.array(
    [[[3, 1], [2, 0], [3, 1]], [[3, 1], [2, 0], [3, 1]], [[0, 1], [2, 2], [0, 1]]], np.float32
)
TEXTS = np.array([["b", "a", "b"], ["d", "c", "d"], ["b", "a", "b"]], object)
ARRAYS = [NUMBERS, NUMBERS[:, ::-1].astype(np.int64), TEXTS, NUMBERS[:0]]


def by_us(x: np.ndarray, count: int, attributes: dict[str, Any]) -> list[np.ndarray]:
    outputs = [Value(f"y{index}") for index in range(count)]
    node = Node("Unique", [Value("x")], outputs, attributes, name="n")
    return list(make_operator(node, {"": 26})(x))


def by_onnxruntime(x: np.ndarray, attributes: dict[str, Any]) -> list[np.ndarray]:
    names = [f"y{index}" for index in range(4)]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    kinds = [kind, *[helper.np_dtype_to_tensor_dtype(np.dtype("int64"))] * 3]
    graph = helper.make_graph(
        [helper.make_node("Unique", ["x"], names, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(*item, None) for item in zip(names, kinds, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})


@pytest.mark.parametrize("x", ARRAYS)
@pytest.mark.parametrize("is_sorted", [{}, {"sorted": 0}, {"sorted": 1}])
@pytest.mark.parametrize("axis", [{}, {"axis": 0}, {"axis": 1}, {"axis": -1}])
def test_all_outputs_are_those_of_onnxruntime(
    x: np.ndarray, axis: dict[str, int], is_sorted: dict[str, int]
) -> None:
    attributes = {**axis, **is_sorted}
    if not x.size and axis.get("axis", 0) != 0:
        attributes.pop("axis")  # of slices without elements onnxruntime says nothing
    expected = by_onnxruntime(x, attributes)
    for made, wanted in zip(by_us(x, 4, attributes), expected, strict=True):
        assert made.dtype == wanted.dtype
        assert made.shape == wanted.shape
        assert made.tolist() == wanted.tolist()


def test_one_output_is_in_the_order_that_is_asked_for() -> None:
    made, *_ = by_us(TEXTS, 1, {"sorted": 0})
    assert made.tolist() == ["b", "a", "d", "c"]
