"""A tiny perceptron: nearly all of a run is the way to the engine and back."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from networks.builder import Dim

INPUTS = {"x": np.ones((1, 16), np.float32)}


def perceptron(batch: Dim = 1, seed: int = 0) -> onnx.ModelProto:
    """Input: x (batch, 16). Output: y (batch, 8)."""
    chance = np.random.default_rng(seed)
    weights = {
        name: chance.standard_normal(shape).astype(np.float32)
        for name, shape in {"w1": (16, 32), "b1": (32,), "w2": (32, 8), "b2": (8,)}.items()
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "fc2"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 16])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 8])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "perceptron", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
