"""Quantised models where nothing runs in int8: in float32, rounded as the file has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from unit.backends.cpu.quantized_models import bert_layer, perceptron, quantized, residual_block
from unit.backends.cpu.test_int8 import assert_a_quantum_off, output_scale, run, samples

KINDS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int, ...]]] = {
    "residual block": (residual_block, (2, 3, 16, 16)),
    "perceptron": (perceptron, (5, 33)),
    "bert layer": (bert_layer, (1, 12, 32)),
}
FLOAT32 = {"CPU_DISABLED_PASSES": "int8 fusion,dynamic int8 fusion,int8 movement,int8 tables"}
HALVES = np.array([-300, -2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 126.5, 254.5, 300], np.float32)


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_what_the_quantizer_writes_is_rounded_in_place(
    core: Core, tmp_path: Path, kind: str, activations: str, per_channel: bool
) -> None:
    make, shape = KINDS[kind]
    path = quantized(
        make(), tmp_path, samples(shape), activations=activations, per_channel=per_channel
    )
    with core.load_network(path, "CPU", FLOAT32) as network:
        operators = [node.op_type for node in network.runtime_graph().nodes]
    assert "QuantizeLinear" not in operators
    assert "DequantizeLinear" not in operators
    for given in samples(shape, 3):
        found = run(core, path, "CPU", given["x"], **FLOAT32)
        wanted = run(core, path, "REFERENCE", given["x"])
        assert_a_quantum_off(found, wanted, output_scale(path))


def rounding(
    zero: np.ndarray, between: list[onnx.NodeProto], scale: float = 1.0, count: int = len(HALVES)
) -> bytes:
    """Quantise, dequantise, do something, and both again in the same way."""
    pair = ("QuantizeLinear", "DequantizeLinear")
    nodes = [
        helper.make_node(pair[0], ["x", "s", "z"], ["q"]),
        helper.make_node(pair[1], ["q", "s", "z"], ["d"]),
        *between,
        helper.make_node(pair[0], ["m", "s", "z"], ["r"]),
        helper.make_node(pair[1], ["r", "s", "z"], ["y"]),
        helper.make_node("Neg", ["y"], ["n"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [count])],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.float32(scale), "s"),
            numpy_helper.from_array(zero, "z"),
            numpy_helper.from_array(np.array([1, -1]), "wide"),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(3), np.int8(-7), np.int8(0)])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_halves_go_where_reference_has_them(core: Core, zero: np.ndarray, scale: float) -> None:
    model = rounding(np.asarray(zero), [helper.make_node("Abs", ["d"], ["m"])], scale)
    found, wanted = (
        core.load_network(model, device).create_infer_request().infer_sync({"x": HALVES * scale})
        for device in ("CPU", "REFERENCE")
    )
    np.testing.assert_array_equal(found["n"], wanted["n"])


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 0.02342, 1.2e-38, 3e38])
def test_numbers_next_to_halves_go_where_a_division_has_them(core: Core, scale: float) -> None:
    places = np.arange(-129.0, 129.0, dtype=np.float64)
    x = np.concatenate([places, places + 0.5]) * np.float32(scale)
    given = {"x": np.clip(x, -3e38, 3e38).astype(np.float32)}
    between = [helper.make_node("Identity", ["d"], ["m"])]
    model = rounding(np.asarray(np.int8(-7)), between, scale, len(x))
    found, wanted = (
        core.load_network(model, device, config).create_infer_request().infer_sync(given)
        for device, config in (("CPU", FLOAT32), ("REFERENCE", {}))
    )
    np.testing.assert_array_equal(found["n"], wanted["n"])


def test_what_is_rounded_and_only_moved_is_not_rounded_again(core: Core) -> None:
    model = rounding(np.asarray(np.uint8(3)), [helper.make_node("Reshape", ["d", "wide"], ["m"])])
    with core.load_network(model, "CPU", FLOAT32) as network:
        steps = [
            step
            for node in network.runtime_graph().nodes
            for step in node.attributes.get("post_ops", [])
        ]
        assert steps.count("round") == 1
        found = network.create_infer_request().infer_sync({"x": HALVES})["n"]
    with core.load_network(model, "REFERENCE") as network:
        wanted = network.create_infer_request().infer_sync({"x": HALVES})["n"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op_type", ["MatMul", "Conv"])
@pytest.mark.parametrize("activations", [np.uint8, np.int8])
@pytest.mark.parametrize("weight", [127, -128])
def test_sums_of_the_largest_products_do_not_overflow(
    core: Core, op_type: str, activations: type[np.integer], weight: int
) -> None:
    """255 * 127 twice is more than 16 bits hold, which is what AVX2 adds such products up in."""
    most = int(np.iinfo(activations).max)
    x = np.full((4, 64) if op_type == "MatMul" else (1, 64, 4, 4), most, np.float32)
    shape = (64, 32) if op_type == "MatMul" else (32, 64, 1, 1)
    constants = {
        "one": np.float32(1),
        "zero": activations(0),
        "w": np.full(shape, weight, np.int8),
        "step": np.float32(abs(weight) * most * 64 / 100.0),
        "middle": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "one"], ["v"]),
        helper.make_node(op_type, ["d", "v"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "step", "middle"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "step", "middle"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_allclose(found, weight * most * 64, rtol=1e-4)


@pytest.mark.parametrize("config", [{}, FLOAT32])
def test_explain_says_in_what_a_quantised_model_computes(
    core: Core, tmp_path: Path, config: dict[str, str]
) -> None:
    path = quantized(perceptron(), tmp_path, samples((5, 33)))
    with core.load_network(path, "CPU", config) as network:
        is_int8 = any(node.op_type == "Int8MatMul" for node in network.runtime_graph().nodes)
        assert ("float32, and rounded" in str(network.explain())) is not is_int8
