"""Weights of networks on CPU that are loaded from a file: held once, whatever shapes come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.cpu.executable_network import CpuNetwork
from aioinfer.backends.cpu.plans import plan
from aioinfer.backends.hetero.executable_network import HeteroNetwork
from aioinfer.runtime.graph.mapped_file import Reading, is_mapped

WIDTH = 128
CHANCE = np.random.default_rng(0)
WEIGHTS = CHANCE.standard_normal((WIDTH, WIDTH)).astype(np.float32)
TABLE = CHANCE.standard_normal((1000, WIDTH)).astype(np.float32)


@pytest.fixture(params=[0, 1, 2, 3], ids="offset {}".format)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model whose tensors lie at any address: its name is longer and longer."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"], "gather"),
            helper.make_node("MatMul", ["rows", "w"], ["y"], "product"),
        ],
        "g" * (1 + request.param),
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(TABLE, "table")],
    )
    opset = helper.make_opsetid("", 21)
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), file)
    return file


def _infer(network: aioinfer.ExecutableNetwork, ids: list[int]) -> np.ndarray:
    results: dict[str, Any] = network.create_infer_request().infer_sync(np.array(ids))
    return np.asarray(results["y"])


@pytest.mark.parametrize("device", ["CPU", "AUTO:CPU", "AUTO:REFERENCE", "HETERO:CPU,REFERENCE"])
def test_any_shape_and_any_address_gives_the_right_answer(
    core: aioinfer.Core, path: Path, device: str
) -> None:
    with core.load_network(path, device) as network:
        for ids in ([1], [5, 999, 0], list(range(40))):
            np.testing.assert_allclose(_infer(network, ids), TABLE[ids] @ WEIGHTS, rtol=1e-3)


def test_a_model_that_is_read_for_the_caller_is_his_own(core: aioinfer.Core, path: Path) -> None:
    model = core.read_model(path)
    assert not model.is_mapped
    for value in model.graph.initializers.values():
        assert value.constant is not None
        assert not is_mapped(value.constant)


def test_pieces_of_open_shapes_leave_what_they_pack_in_the_file(
    core: aioinfer.Core, path: Path
) -> None:
    config = {"AFFINITY": {"gather": "REFERENCE", "product": "CPU"}}
    with core.load_network(path, "HETERO:CPU,REFERENCE", config) as network:
        for ids in ([1], [5, 999, 0]):
            np.testing.assert_allclose(_infer(network, ids), TABLE[ids] @ WEIGHTS, rtol=1e-3)
        assert isinstance(network, HeteroNetwork)
        gather, product = network.networks
        constants = [
            {name: value.constant for name, value in part._model.graph.initializers.items()}
            for part in (gather, product)
        ]
        assert [list(found) for found in constants] == [["table"], ["w"]]
        assert not is_mapped(constants[0]["table"])
        assert constants[0]["table"].flags.aligned
        assert is_mapped(constants[1]["w"])


def test_what_plans_use_lies_in_memory_of_their_own(core: aioinfer.Core, path: Path) -> None:
    with core.load_network(path, "CPU") as network:
        _infer(network, [1, 2])
        assert isinstance(network, CpuNetwork)
        plan = network._compiler.latest
        buffers = [
            operand.buffer.array
            for step in plan.steps
            for operand in getattr(step, "operands", ())
            if operand.buffer.array is not None
        ]
        assert buffers
        assert all(not is_mapped(array) for array in buffers)
        assert all(array.ctypes.data % 4 == 0 for array in buffers)


def test_weights_that_layers_share_and_that_are_joined_are_held_once_and_packed(
    core: aioinfer.Core, tmp_path: Path
) -> None:
    """Two layers of the same weights, as an exporter writes them: the second's are Identity."""
    text = """agraph (float[n,128] x) => (float[n,128] y) {
        a = MatMul(x, q)
        b = MatMul(x, k)
        c = Mul(a, b)
        d = MatMul(c, w)
        q2 = Identity(q)
        k2 = Identity(k)
        w2 = Identity(w)
        e = MatMul(d, q2)
        f = MatMul(d, k2)
        g = Mul(e, f)
        y = MatMul(g, w2)
    }"""
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text)
    q, k, w = (WEIGHTS * scale for scale in (0.1, 0.2, 0.3))
    for name, array in (("q", q), ("k", k), ("w", w)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    file = tmp_path / "shared.onnx"
    onnx.save(model, file)
    with core.load_network(file, "CPU") as network:
        assert isinstance(network, CpuNetwork)
        request = network.create_infer_request()
        for rows in (3, 5, 7, 3):
            x = CHANCE.standard_normal((rows, WIDTH)).astype(np.float32)
            first = ((x @ q) * (x @ k)) @ w
            wanted = ((first @ q) * (first @ k)) @ w
            found = request.infer_sync(x)["y"]
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * abs(wanted).max())
        weights = network._compiler.weights
        plan = network._compiler.latest
        assert len(plan.weights) == 2
        assert weights.packed_bytes >= 3 * WEIGHTS.nbytes
        assert repr(weights.derived) == "<ConstantCache 0 arrays, 0 bytes>"


def test_room_for_reading_is_that_of_what_is_read(
    core: aioinfer.Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant that the load has computed is larger, and lies in memory already."""
    rooms: list[int] = []

    def reading(size_bytes: int) -> Reading:
        rooms.append(size_bytes)
        return Reading(size_bytes)

    monkeypatch.setattr(plan, "Reading", reading)
    graph = helper.make_graph(
        [
            helper.make_node("Concat", ["part", "part", "part"], ["wide"], axis=1),
            helper.make_node("MatMul", ["x", "w"], ["y"], "narrow product"),
            helper.make_node("MatMul", ["y", "wide"], ["z"], "wide product"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3 * WIDTH])],
        [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(WEIGHTS, "part")],
    )
    file = tmp_path / "model.onnx"
    opset = helper.make_opsetid("", 21)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), file)
    x = CHANCE.standard_normal((9, WIDTH)).astype(np.float32)
    with core.load_network(file, "CPU") as network:
        (found,) = network.create_infer_request().infer_sync(x).values()
    np.testing.assert_allclose(found, np.tile(x @ WEIGHTS @ WEIGHTS, 3), rtol=1e-3, atol=1e-3)
    assert rooms == [WEIGHTS.nbytes]
