"""What becomes of a model's weights when it is split over devices."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.errors import NotSupportedError
from aioinfer.runtime.graph.slabs import Slabs

WEIGHTS = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32)
X = np.ones((1, 96), np.float32)
TWO = "HETERO:REFERENCE.0,REFERENCE.1"
CONFIG = {"AFFINITY": {"first": "REFERENCE.0", "second": "REFERENCE.1"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
            helper.make_node("MatMul", ["a", "w"], ["y"], "second"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 96])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    opset = helper.make_opsetid("", 21)
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), file)
    return file


def test_a_model_that_nobody_holds_leaves_its_weights_to_the_devices(
    core: aioinfer.Core, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[weakref.ref[np.ndarray]] = []
    plain = Slabs.empty

    def noted(slabs: Slabs, size_bytes: int) -> np.ndarray:
        memory = plain(slabs, size_bytes)
        if size_bytes == WEIGHTS.nbytes:
            kept.append(weakref.ref(memory.base if memory.base is not None else memory))
        return memory

    monkeypatch.setattr(Slabs, "empty", noted)
    with core.load_network(
        path.read_bytes(), "HETERO:CPU,REFERENCE", {"AFFINITY": {"second": "CPU"}}
    ) as network:
        assert isinstance(network, HeteroNetwork)
        gc.collect()
        held = sum(ref() is not None for ref in kept)
        is_packed = network.networks[0].get_metric("PACKED_WEIGHTS_BYTES") > 0
        assert held == (0 if is_packed else 1), "what is packed is gone, and else it is read"
        got = network.create_infer_request().infer_sync(X)["y"]
        np.testing.assert_allclose(got, X @ WEIGHTS @ WEIGHTS, rtol=1e-3)


def test_its_subgraphs_cannot_be_had_afterwards(core: aioinfer.Core, path: Path) -> None:
    with core.load_network(path, TWO, CONFIG) as network:
        np.testing.assert_allclose(
            network.create_infer_request().infer_sync(X)["y"], X @ WEIGHTS @ WEIGHTS, rtol=1e-3
        )
        assert [node.name for node in network.runtime_graph().nodes] == ["first", "second"]
        with pytest.raises(NotSupportedError, match="read the model first"):
            network.subgraph_models()


def test_a_model_that_the_caller_holds_stays_whole(core: aioinfer.Core, path: Path) -> None:
    model = core.read_model(path)
    with core.load_network(model, TWO, CONFIG) as network:
        for _, piece in network.subgraph_models():
            [constant] = [value.constant for value in piece.graph.initializers.values()]
            np.testing.assert_array_equal(constant, WEIGHTS)
    np.testing.assert_array_equal(model.graph.initializers["w"].constant, WEIGHTS)
