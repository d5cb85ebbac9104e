"""Large results of CPU networks: memory that is used again, and never while somebody has it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aioinfer

SHAPE = (1, 512, 512)


@pytest.fixture
def model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"], "neg")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
    )
    opset = helper.make_opsetid("", 21)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def test_a_result_that_is_gone_leaves_its_memory_to_the_next(
    core: aioinfer.Core, model: onnx.ModelProto
) -> None:
    with core.load_network(model, "CPU") as network:
        x = np.ones(SHAPE, np.float32)
        request = network.create_infer_request()
        first = request.infer_sync(x)["y"]
        address = first.ctypes.data
        second = request.infer_sync(2 * x)["y"]
        assert second.ctypes.data != address
        assert (first == -1).all()
        del first
        third = request.infer_sync(3 * x)["y"]
        assert third.ctypes.data == address
        assert (second == -2).all()
        assert (third == -3).all()


def test_a_view_of_a_result_is_the_callers_after_the_network_is_closed(
    core: aioinfer.Core, model: onnx.ModelProto
) -> None:
    with core.load_network(model, "CPU") as network:
        x = np.ones(SHAPE, np.float32)
        corner = network.create_infer_request().infer_sync(x)["y"][0, :2, :2]
    assert (corner == -1).all()
    corner[:] = 5
    assert (corner == 5).all()
