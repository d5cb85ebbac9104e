"""Weights of few bits, packed in bytes, on devices that know ONNX's operators alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import aioinfer
from aioinfer.errors import AioInferError
from unit.runtime.decompositions.contrib_models import (
    Arrays,
    by_onnxruntime,
    contrib_model,
    on_device,
)

RANDOM = np.random.default_rng(9)
COLUMNS = 24


def packed(
    inner: int, *, bits: int, length: int, zero: str = "", has_bias: bool = False
) -> tuple[bytes, Arrays]:
    blocks = -(-inner // length)
    constants: dict[str, np.ndarray] = {
        "w": RANDOM.integers(0, 256, (COLUMNS, blocks, length * bits // 8)).astype(np.uint8),
        "s": RANDOM.uniform(0.01, 0.02, (COLUMNS * blocks)).astype(np.float32),
    }
    operands = ["x", "w", "s", "", "", ""]
    if zero == "packed":
        shape = COLUMNS * -(-blocks * bits // 8)
        constants["z"] = RANDOM.integers(0, 256, shape).astype(np.uint8)
        operands[3] = "z"
    if zero == "real":
        constants["z"] = RANDOM.uniform(0, 15, COLUMNS * blocks).astype(np.float32)
        operands[3] = "z"
    if has_bias:
        constants["b"] = RANDOM.normal(size=COLUMNS).astype(np.float32)
        operands[5] = "b"
    while not operands[-1]:
        operands.pop()
    given = {"x": RANDOM.normal(size=(2, 3, inner)).astype(np.float32)}
    attributes: dict[str, Any] = {"K": inner, "N": COLUMNS, "bits": bits, "block_size": length}
    model = contrib_model("MatMulNBits", operands, given, constants, np.float32, **attributes)
    return model, given


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize(
    "case",
    [
        {"inner": 64, "bits": 4, "length": 32},
        {"inner": 96, "bits": 4, "length": 32, "zero": "packed"},
        {"inner": 64, "bits": 4, "length": 16, "zero": "real"},
        {"inner": 80, "bits": 4, "length": 32, "has_bias": True},
        {"inner": 100, "bits": 4, "length": 32, "zero": "packed", "has_bias": True},
        {"inner": 64, "bits": 8, "length": 32},
        {"inner": 96, "bits": 8, "length": 32, "zero": "packed"},
    ],
    ids=str,
)
def test_results_are_those_of_onnxruntime(
    core: aioinfer.Core, device: str, case: dict[str, Any]
) -> None:
    model, given = packed(**case)
    wanted = by_onnxruntime(model, given)
    found = on_device(core, model, device, given)
    # onnxruntime may store the data in 8 bits for it.
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
    by_hand = unpacked_matmul(model, given)
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-5 * np.abs(by_hand).max())


def unpacked_matmul(model: bytes, given: Arrays) -> np.ndarray:
    graph = onnx.load_from_string(model).graph
    node = graph.node[0]
    attributes = {item.name: item.i for item in node.attribute}
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    inner, bits, length = (attributes[name] for name in ("K", "bits", "block_size"))
    blocks = -(-inner // length)

    def numbers(array: np.ndarray) -> np.ndarray:
        rows = array.reshape(COLUMNS, -1)
        if bits == 8:
            return rows
        return np.stack([rows & 15, rows >> 4], axis=-1).reshape(COLUMNS, -1)

    whole = numbers(constants["w"]).reshape(COLUMNS, blocks, length).astype(np.float64)
    zero: Any = float(1 << bits - 1)
    if "z" in constants:
        points = constants["z"]
        is_packed = points.dtype == np.uint8
        rows = numbers(points)[:, :blocks] if is_packed else points.reshape(COLUMNS, blocks)
        zero = rows[..., None].astype(np.float64)
    scale = constants["s"].reshape(COLUMNS, blocks, 1)
    if "g" in constants:
        order = constants["g"]
        whole = whole.reshape(COLUMNS, -1)[:, :inner]
        zero = zero if isinstance(zero, float) else zero[:, order, 0]
        scale = scale[:, order, 0]
    weights = ((whole - zero) * scale).reshape(COLUMNS, -1)[:, :inner].T
    made = given["x"].astype(np.float64) @ weights
    return np.asarray(made + constants.get("b", 0.0))


def test_weights_are_unpacked_once(core: aioinfer.Core) -> None:
    model, _ = packed(96, bits=4, length=32, zero="packed")
    without = {"CPU_DISABLED_PASSES": "packed weights"}
    with core.load_network(model, "CPU", without) as network:
        found = [node.op_type for node in network.runtime_graph().nodes]
    assert found == ["MatMul"]


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("zero", ["", "packed"])
@pytest.mark.parametrize(("inner", "bits"), [(96, 4), (80, 4), (64, 8)])
def test_rows_in_an_order_of_their_own(
    core: aioinfer.Core, device: str, inner: int, bits: int, zero: str
) -> None:
    blocks = -(-inner // 32)
    constants: dict[str, np.ndarray] = {
        "w": RANDOM.integers(0, 256, (COLUMNS, blocks, 32 * bits // 8)).astype(np.uint8),
        "s": RANDOM.uniform(0.01, 0.02, COLUMNS * blocks).astype(np.float32),
        "z": RANDOM.integers(0, 256, COLUMNS * -(-blocks * bits // 8)).astype(np.uint8),
        "g": RANDOM.permutation(np.arange(inner) // 32).astype(np.int32),
    }
    if not zero:
        del constants["z"]
    given = {"x": RANDOM.normal(size=(2, 3, inner)).astype(np.float32)}
    operands = ["x", "w", "s", "z" if zero else "", "g"]
    attributes: dict[str, Any] = {"K": inner, "N": COLUMNS, "bits": bits, "block_size": 32}
    model = contrib_model("MatMulNBits", operands, given, constants, np.float32, **attributes)
    found = on_device(core, model, device, given)
    by_hand = unpacked_matmul(model, given)
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-5 * np.abs(by_hand).max())
    if bits == 4 and not zero:  # onnxruntime has no 8 bits here, and 8 for any zero points
        wanted = by_onnxruntime(model, given)
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


def test_weights_that_are_too_few_are_refused(core: aioinfer.Core) -> None:
    given = {"x": np.zeros((1, 128), np.float32)}
    constants = {"w": np.zeros((COLUMNS, 2, 16), np.uint8), "s": np.ones(2 * COLUMNS, np.float32)}
    attributes: dict[str, Any] = {"K": 128, "N": COLUMNS, "bits": 4, "block_size": 32}
    model = contrib_model(
        "MatMulNBits", ["x", "w", "s"], given, constants, np.float32, **attributes
    )
    for device in ("CPU", "REFERENCE"):
        with pytest.raises(AioInferError, match="'node'"):
            core.load_network(model, device)
