"""MobileNetV2 as exporters write it, with batch normalization folded, and with random weights.

So nothing is downloaded, and the network takes as long as a trained one. What it says of a picture
means nothing.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CLASS_COUNT", "SIZE", "mobilenet_v2"]

SIZE = 224
CLASS_COUNT = 1000
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks, and the stride of the first of them."""


def mobilenet_v2(seed: int = 0, size: int = SIZE) -> onnx.ModelProto:
    """Build it for ``image``, float32 (batch, 3, size, size); gives ``logits``, (batch, 1000)."""
    builder = _Builder(seed)
    x = builder.conv("image", 3, 32, kernel=3, stride=2)
    channels = 32
    for expansion, wanted, count, first_stride in STAGES:
        for block in range(count):
            stride, inner, y = (1 if block else first_stride), channels * expansion, x
            if expansion > 1:
                y = builder.conv(y, channels, inner)
            y = builder.conv(y, inner, inner, kernel=3, stride=stride, groups=inner)
            y = builder.conv(y, inner, wanted, has_activation=False)
            x, channels = (builder.node("Add", x, y) if block else y), wanted
    x = builder.conv(x, channels, 1280)
    x = builder.node("Flatten", builder.node("GlobalAveragePool", x))
    weight = builder.constant((1280, CLASS_COUNT), np.sqrt(1 / 1280))
    logits = builder.node("Gemm", x, weight, builder.constant((CLASS_COUNT,), 0.0))
    builder.nodes[-1].output[0] = logits = "logits"
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        builder.nodes,
        "mobilenet_v2",
        [port("image", TensorProto.FLOAT, ["batch", 3, size, size])],
        [port(logits, TensorProto.FLOAT, ["batch", CLASS_COUNT])],
        builder.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class _Builder:
    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def constant(self, shape: tuple[int, ...], scale: float) -> str:
        name = f"weight_{len(self.weights)}"
        array = self._chance.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, number: float) -> str:
        name = f"number_{number:g}"
        if all(item.name != name for item in self.weights):
            self.weights.append(numpy_helper.from_array(np.array(number, np.float32), name))
        return name

    def conv(
        self,
        x: str,
        channels: int,
        wanted: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        has_activation: bool = True,
    ) -> str:
        """Convolution with a bias and, mostly, ReLU6 behind it."""
        fan_in = channels // groups * kernel * kernel
        weight = self.constant((wanted, channels // groups, kernel, kernel), np.sqrt(2 / fan_in))
        attributes = {
            "kernel_shape": [kernel, kernel],
            "strides": [stride, stride],
            "pads": [kernel // 2] * 4,
            "group": groups,
        }
        y = self.node("Conv", x, weight, self.constant((wanted,), 0.1), **attributes)
        return self.node("Clip", y, self.scalar(0), self.scalar(6)) if has_activation else y
