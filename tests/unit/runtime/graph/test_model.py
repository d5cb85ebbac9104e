"""Models that are taken apart, and models that are not."""

from __future__ import annotations

import weakref

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core, Model


def _proto() -> bytes:
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [weights],
    )
    opset = helper.make_opsetid("", 21)
    content: bytes = helper.make_model(
        graph, opset_imports=[opset], ir_version=10
    ).SerializeToString()
    return content


def test_a_disposed_model_frees_its_weights_without_the_collector(
    core: Core, no_collector: None
) -> None:
    model = core.read_model(_proto())
    weights = weakref.ref(model.graph.initializers["w"].constant)
    copied = model.copy()
    model.dispose()
    assert weights() is not None  # the copy shares the bytes
    copied.dispose()
    assert weights() is None


def test_a_model_of_the_users_is_left_alone(core: Core) -> None:
    model = core.read_model(_proto())
    before = str(model)
    for _ in range(2):
        core.load_network(model, "REFERENCE").close()
    assert not model.is_disposable
    assert str(model) == before
    assert model.graph.initializers["w"].constant is not None


def test_auto_may_try_the_next_device_with_a_model_it_was_given(core: Core) -> None:
    with core.load_network(_proto(), "AUTO:REFERENCE") as network:
        result = network.create_infer_request().infer_sync(np.ones((1, 64), np.float32))
    np.testing.assert_allclose(result["y"], 64)
    assert isinstance(core.read_model(_proto()), Model)
