"""Picked features beside onnxruntime's, on devices that know Gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.runtime.passes import run_passes
from aioinfer.runtime.passes.decomposing import Decomposing

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


def model_of(x: Any, places: Any, before: Any = None, inputs: Any = None) -> bytes:
    """Pick from x; places are a constant, or come from nodes before, or from the caller."""
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], "n", domain="ai.onnx.ml")
    kind = KINDS[x.dtype]
    ports = [helper.make_tensor_value_info("x", kind, x.shape)]
    constants = [] if places is None else [numpy_helper.from_array(np.array(places), "i")]
    graph = helper.make_graph(
        [*(before or []), node],
        "g",
        [*ports, *(inputs or [])],
        [helper.make_tensor_value_info("y", kind, None)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("places", [[3], [4, 0, 0], [[1, 2]]])
def test_as_onnxruntime_picks(
    core: Core, shape: tuple[int, ...], places: Any, dtype: Any, device: str
) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    model = model_of(x, places)
    (wanted,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


def operators_of(core: Core, model: bytes) -> list[str]:
    read = core.read_model(model)
    run_passes(read, [Decomposing()])
    return [node.op_type for node in read.graph.nodes]


def test_places_of_an_extreme_are_gathered_by(core: Core) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = [
        helper.make_node("ArgMax", ["x"], ["a"], axis=1, keepdims=1),
        helper.make_node("Flatten", ["a"], ["i"]),
    ]
    assert operators_of(core, model_of(x, None, before))[-1] == "Gather"


def test_indices_that_may_be_below_0_are_left_to_the_operator(core: Core) -> None:
    """Gather would count them from the end, and this operator refuses them."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    port = helper.make_tensor_value_info("i", TensorProto.INT64, [1])
    assert operators_of(core, model_of(x, None, inputs=[port])) == ["ArrayFeatureExtractor"]
    assert operators_of(core, model_of(x, [-1])) == ["ArrayFeatureExtractor"]
