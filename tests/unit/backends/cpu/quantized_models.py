"""Models as onnxruntime's quantizer writes them, of random weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "Arrays",
    "bert_layer",
    "long_product",
    "perceptron",
    "quantized",
    "residual_block",
]

Arrays = dict[str, np.ndarray]
node = helper.make_node


class _Weights:
    """Random constants of a graph."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self.made: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int, inner: int = 0) -> str:
        array = self._random.standard_normal(shape) / np.sqrt(inner or np.prod(shape[1:]))
        return self.constant(name, array.astype(np.float32))

    def row(self, name: str, length: int) -> str:
        return self.constant(name, self._random.normal(0.0, 0.1, length).astype(np.float32))

    def constant(self, name: str, array: np.ndarray) -> str:
        self.made.append(numpy_helper.from_array(array, name))
        return name


def _model(
    nodes: Sequence[Any], weights: _Weights, x: Sequence[int | str], y: Sequence[int | str]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "float",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        weights.made,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def residual_block(channels: int = 32, size: int = 16) -> onnx.ModelProto:
    """A stem, a residual block with a branch, a depthwise layer and a classifier."""
    given = _Weights()
    weight, row = given.weight, given.row
    nodes = [
        node("Conv", ["x", weight("w0", channels, 3, 3, 3), row("b0", channels)], ["c0"],
             pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["p0", weight("w1", channels, channels, 3, 3), row("b1", channels)], ["c1"],
             pads=[1] * 4),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", weight("w2", channels, channels, 1, 1), row("b2", channels)], ["c2"]),
        node("Add", ["c2", "p0"], ["a2"]),
        node("Relu", ["a2"], ["r2"]),
        node("Conv", ["r2", weight("w3", channels, channels // 4, 3, 3)], ["c3"],
             group=4, auto_pad="SAME_UPPER"),
        node("Conv", ["c3", weight("wd", channels, 1, 3, 3), row("bd", channels)], ["cd"],
             pads=[1] * 4, group=channels),
        node("Clip", ["cd", given.constant("low", np.float32(0)),
                      given.constant("high", np.float32(6))], ["rd"]),
        node("GlobalAveragePool", ["rd"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", weight("wg", 10, channels), row("bg", 10)], ["y"], transB=1),
    ]  # fmt: skip
    return _model(nodes, given, [2, 3, size, size], [2, 10])


def perceptron(rows: int | str = 5) -> onnx.ModelProto:
    """Three Gemms, of which one is a MatMul with an Add behind it."""
    given = _Weights(1)
    nodes = [
        node("Gemm", ["x", given.weight("w0", 33, 64, inner=33), given.row("b0", 64)], ["g0"]),
        node("Relu", ["g0"], ["r0"]),
        node("MatMul", ["r0", given.weight("w1", 64, 48, inner=64)], ["m1"]),
        node("Add", ["m1", given.row("b1", 48)], ["a1"]),
        node("Sigmoid", ["a1"], ["s1"]),
        node("Gemm", ["s1", given.weight("w2", 7, 48)], ["y"], transB=1),
    ]
    return _model(nodes, given, [rows, 33], [rows, 7])


def bert_layer(length: int | str = 12, width: int = 32, heads: int = 2) -> onnx.ModelProto:
    """Self-attention and a feed-forward part, residuals and normalisations."""
    given = _Weights(2)
    nodes: list[Any] = []

    def dense(source: str, name: str, inner: int, outer: int) -> str:
        weight, bias = given.weight(f"w_{name}", inner, outer, inner=inner), given.row(name, outer)
        nodes.append(node("MatMul", [source, weight], [f"m_{name}"]))
        nodes.append(node("Add", [f"m_{name}", bias], [f"d_{name}"]))
        return f"d_{name}"

    def split(source: str, name: str, order: Sequence[int]) -> str:
        shape = given.constant(f"to_{name}", np.array([1, -1, heads, width // heads]))
        nodes.append(node("Reshape", [source, shape], [f"s_{name}"]))
        nodes.append(node("Transpose", [f"s_{name}"], [f"t_{name}"], perm=list(order)))
        return f"t_{name}"

    def normalised(left: str, right: str, name: str) -> str:
        nodes.append(node("Add", [left, right], [f"a_{name}"]))
        scale = given.constant(f"scale_{name}", np.ones(width, np.float32))
        inputs = [f"a_{name}", scale, given.row(f"shift_{name}", width)]
        nodes.append(node("LayerNormalization", inputs, [f"n_{name}"], axis=-1))
        return f"n_{name}"

    q, k, v = (dense("x", name, width, width) for name in "qkv")
    q, k, v = (
        split(value, name, order)
        for value, name, order in ((q, "hq", (0, 2, 1, 3)), (k, "hk", (0, 2, 3, 1)),
                                   (v, "hv", (0, 2, 1, 3)))
    )  # fmt: skip
    nodes.append(node("MatMul", [q, k], ["scores"]))
    nodes.append(node("Softmax", ["scores"], ["weights"], axis=-1))
    nodes.append(node("MatMul", ["weights", v], ["mixed"]))
    nodes.append(node("Transpose", ["mixed"], ["merged"], perm=[0, 2, 1, 3]))
    shape = given.constant("back", np.array([1, -1, width]))
    nodes.append(node("Reshape", ["merged", shape], ["joined"]))
    first = normalised(dense("joined", "o", width, width), "x", "first")
    middle = dense(first, "up", width, 4 * width)
    nodes.append(node("Relu", [middle], ["active"]))
    last = normalised(dense("active", "down", 4 * width, width), first, "last")
    nodes.append(node("MatMul", [last, given.weight("w_y", width, width)], ["y"]))
    return _model(nodes, given, [1, length, width], [1, length, width])


def long_product(path: Path, inner: int, weight: int, activations: type) -> Path:
    """A quantised MatMul of so many products, all of the same weight."""
    given = _Weights()
    scale = given.constant("scale", np.float32(1 / np.iinfo(activations).max))
    zero = given.constant("zero", activations(0))
    stored = given.constant("stored", np.full((inner, 4), weight, np.int8))
    small = given.constant("small", np.float32(1e-4))
    nodes = [
        node("QuantizeLinear", ["x", scale, zero], ["q"]),
        node("DequantizeLinear", ["q", scale, zero], ["d"]),
        node("DequantizeLinear", [stored, small], ["w"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    onnx.save(_model(nodes, given, [2, inner], [2, 4]), path)
    return path


def quantized(
    model: onnx.ModelProto,
    folder: Path,
    samples: Sequence[Mapping[str, np.ndarray]],
    *,
    activations: str = "QUInt8",
    weights: str = "QInt8",
    per_channel: bool = True,
    is_symmetric: bool = False,
    style: str = "QDQ",
) -> Path:
    """Quantise a model by onnxruntime, calibrated by these inputs."""
    tools = pytest.importorskip("onnxruntime.quantization")

    class Samples(tools.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._left: Iterator[Mapping[str, np.ndarray]] = iter(samples)

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            return next(self._left, None)

    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(model, source)
    tools.quantize_static(
        source,
        target,
        Samples(),
        quant_format=tools.QuantFormat[style],
        per_channel=per_channel,
        activation_type=tools.QuantType[activations],
        weight_type=tools.QuantType[weights],
        extra_options={"ActivationSymmetric": is_symmetric},
    )
    return target
