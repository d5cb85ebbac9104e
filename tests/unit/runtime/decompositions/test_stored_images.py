"""What onnxruntime writes for quantised images, on devices that know ONNX's operators alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import aioinfer
from unit.runtime.decompositions.contrib_models import by_onnxruntime, on_device

RANDOM = np.random.default_rng(21)
DEVICES = ["REFERENCE", "CPU"]


def model_of(
    op_type: str,
    x: np.ndarray,
    constants: dict[str, np.ndarray],
    result: Any,
    **attributes: Any,
) -> bytes:
    """Write a model of one node; "" is an operand that is left out."""
    names = [name if array.size else "" for name, array in constants.items()]
    node = helper.make_node(
        op_type, ["x", *names], ["y"], name="node", domain="com.microsoft", **attributes
    )
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", kind(np.dtype(result)), None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if array.size],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stored", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("per_axis", [False, True])
def test_numbers_are_stored_and_read(
    core: aioinfer.Core, device: str, stored: Any, per_axis: bool
) -> None:
    x = (RANDOM.normal(size=(2, 3, 4)) * 40).astype(np.float32)
    scale = RANDOM.uniform(0.1, 0.5, 3 if per_axis else ()).astype(np.float32)
    zero = RANDOM.integers(0, 9, scale.shape).astype(stored)
    axis: dict[str, Any] = {"axis": 1} if per_axis else {}
    numbers = {"scale": scale, "zero": zero}
    model = model_of("QuantizeLinear", x, numbers, stored, **axis)
    small = by_onnxruntime(model, {"x": x})
    found = on_device(core, model, device, {"x": x})
    np.testing.assert_array_equal(found, small, strict=True)
    model = model_of("DequantizeLinear", small, numbers, np.float32, **axis)
    wanted = by_onnxruntime(model, {"x": small})
    found = on_device(core, model, device, {"x": small})
    np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_read_without_a_zero_point(core: aioinfer.Core, device: str) -> None:
    x = RANDOM.integers(-(10**6), 10**6, (2, 5)).astype(np.int32)
    scale = {"scale": np.array(0.125, np.float32)}
    model = model_of("DequantizeLinear", x, scale, np.float32)
    wanted = by_onnxruntime(model, {"x": x})
    np.testing.assert_array_equal(on_device(core, model, device, {"x": x}), wanted, strict=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolutions(
    core: aioinfer.Core, device: str, channels_last: int, group: int, has_bias: bool
) -> None:
    shape = (2, 9, 8, 6) if channels_last else (2, 6, 9, 8)
    x = RANDOM.integers(0, 256, shape).astype(np.uint8)
    constants = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "w": RANDOM.integers(-128, 128, (12, 6 // group, 3, 3)).astype(np.int8),
        "ws": RANDOM.uniform(0.01, 0.03, 12).astype(np.float32),
        "wz": np.zeros(12, np.int8),
        "ys": np.array(0.31, np.float32),
        "yz": np.array(128, np.uint8),
        "b": RANDOM.integers(-999, 999, 12 if has_bias else 0).astype(np.int32),
    }
    model = model_of(
        *("QLinearConv", x, constants, np.uint8),
        channels_last=channels_last,
        group=group,
        kernel_shape=[3, 3],
        pads=[1, 0, 1, 2],
        strides=[2, 1],
    )
    wanted = by_onnxruntime(model, {"x": x})
    found = on_device(core, model, device, {"x": x})
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    difference = np.abs(found.astype(int) - wanted.astype(int))
    assert difference.max() <= 1  # where the result lies between two numbers
    assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stored", [np.uint8, np.int8])
def test_pools_with_channels_last(core: aioinfer.Core, device: str, stored: Any) -> None:
    x = RANDOM.integers(0, 128, (2, 7, 6, 5)).astype(stored)
    model = model_of(
        *("NhwcMaxPool", x, {}, stored),
        kernel_shape=[3, 2],
        pads=[1, 0, 1, 1],
        strides=[2, 1],
    )
    wanted = by_onnxruntime(model, {"x": x})
    found = on_device(core, model, device, {"x": x})
    np.testing.assert_array_equal(found, wanted, strict=True)
