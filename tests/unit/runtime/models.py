"""Small models for the runtime's tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper


def tiny_model(name: str = "tiny") -> onnx.ModelProto:
    """y = relu(x) + x, for float32 x of shape [n, 3]."""
    return _model(
        name,
        [
            helper.make_node("Relu", ["x"], ["r"], "relu"),
            helper.make_node("Add", ["r", "x"], ["y"], "add"),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )


def two_input_model() -> onnx.ModelProto:
    """sum = a + b, for float32 a and b of one symbolic length."""
    return _model(
        "two",
        [helper.make_node("Add", ["a", "b"], ["sum"], "add")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "ab"],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["n"])],
    )


def nonzero_model() -> onnx.ModelProto:
    """The indices of what is not zero: an output whose shape depends on the data."""
    return _model(
        "nonzero",
        [helper.make_node("NonZero", ["x"], ["where"], "nonzero")],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("where", TensorProto.INT64, [1, "count"])],
    )


def expected(x: np.ndarray) -> np.ndarray:
    """What tiny_model gives."""
    return np.maximum(x, 0) + x


def _model(name: str, nodes: list, inputs: list, outputs: list) -> onnx.ModelProto:
    return helper.make_model(
        helper.make_graph(nodes, name, inputs, outputs),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
