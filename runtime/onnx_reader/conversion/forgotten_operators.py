"""Operators and forms that onnx no longer knows, made of those of the newest opset.

The first opset had operators on trial. onnx has dropped them, or has brought them back in another
form; onnxruntime runs them in models of an opset before 10, where they became deprecated. A
BatchNormalization that is not spatial has a mean and a variance for each element of a sample; onnx
knows it up to opset 8 and cannot convert it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper

from .node_writer import NodeWriter

__all__ = ["is_forgotten", "remember"]

Attributes = Mapping[str, Any]

_TO_THE_END = np.iinfo(np.int64).max


def is_forgotten(node: onnx.NodeProto, version: int) -> bool:
    """True for a node of ONNX that onnx does not know, or cannot convert, and ``remember`` does."""
    last, _ = _FORGOTTEN.get(node.op_type, (0, None))
    if node.domain or version > last:
        return False
    return node.op_type != "BatchNormalization" or _is_not_spatial(node)


def remember(writer: NodeWriter, original: onnx.NodeProto) -> None:
    """Make what ``is_forgotten`` of nodes that onnx knows; the writer's node gives the last."""
    given = {item.name: onnx.helper.get_attribute_value(item) for item in original.attribute}
    _, rewrite = _FORGOTTEN[original.op_type]
    rewrite(writer, given)


def _is_not_spatial(node: onnx.NodeProto) -> bool:
    spatial = [item.i for item in node.attribute if item.name == "spatial"]
    return spatial == [0] and len(node.output) == 1


def _affine(writer: NodeWriter, given: Attributes) -> None:
    scaled = _times(writer, writer.node.input[0], given.get("alpha", 1.0))
    writer.become("Add", scaled, writer.constant(given.get("beta", 0.0), np.float32))


def _scale(writer: NodeWriter, given: Attributes) -> None:
    factor = writer.constant(given.get("scale", 1.0), np.float32)
    writer.become("Mul", writer.node.input[0], factor)


def _scaled_tanh(writer: NodeWriter, given: Attributes) -> None:
    _scaled(writer, "Tanh", given)


def _parametric_softplus(writer: NodeWriter, given: Attributes) -> None:
    _scaled(writer, "Softplus", given)


def _scaled(writer: NodeWriter, op_type: str, given: Attributes) -> None:
    inner = _times(writer, writer.node.input[0], given.get("beta", 0.0))
    outer = writer.constant(given.get("alpha", 0.0), np.float32)
    writer.become("Mul", writer.put_before(op_type, inner), outer)


def _times(writer: NodeWriter, name: str, factor: float) -> str:
    return writer.put_before("Mul", name, writer.constant(factor, np.float32))


def _image_scaler(writer: NodeWriter, given: Attributes) -> None:
    scaled = _times(writer, writer.node.input[0], given.get("scale", 1.0))
    bias = np.reshape(given.get("bias", []), (-1, 1, 1))
    writer.become("Add", scaled, writer.constant(bias, np.float32))


def _crop(writer: NodeWriter, given: Attributes) -> None:
    left, top, right, bottom = given.get("border", [0] * 4)
    if "scale" in given:
        height, width = given["scale"]
        ends = [top + height, left + width]
    else:
        ends = [-bottom or _TO_THE_END, -right or _TO_THE_END]
    places = ([top, left], ends, [2, 3])
    constants = [writer.constant(place, np.int64) for place in places]
    writer.become("Slice", writer.node.input[0], *constants)


def _dynamic_slice(writer: NodeWriter, _given: Attributes) -> None:
    writer.become("Slice", *writer.node.input)


def _mean_variance_normalization(writer: NodeWriter, given: Attributes) -> None:
    axes = [0, 1, 2, 3] if given.get("across_channels", 0) else [0, 2, 3]
    image = writer.node.input[0]
    if given.get("normalize_variance", 1):
        writer.become("MeanVarianceNormalization", image, axes=axes)
    else:
        mean = writer.put_before("ReduceMean", image, writer.constant(axes, np.int64))
        writer.become("Sub", image, mean)


def _thresholded_relu(writer: NodeWriter, given: Attributes) -> None:
    writer.become("ThresholdedRelu", writer.node.input[0], alpha=given.get("alpha", 1.0))


def _batch_normalization(writer: NodeWriter, given: Attributes) -> None:
    image, scale, bias, mean, variance = writer.node.input
    centred = writer.put_before("Sub", image, mean)
    tiny = writer.constant(given.get("epsilon", 1e-5), np.float32)
    spread = writer.put_before("Add", variance, writer.put_before("CastLike", tiny, variance))
    ratio = writer.put_before("Div", scale, writer.put_before("Sqrt", spread))
    writer.become("Add", writer.put_before("Mul", centred, ratio), bias)


_FORGOTTEN: Mapping[str, tuple[int, Callable[[NodeWriter, Attributes], None]]] = {
    "Affine": (9, _affine),
    "BatchNormalization": (8, _batch_normalization),
    "Crop": (9, _crop),
    "DynamicSlice": (9, _dynamic_slice),
    "ImageScaler": (9, _image_scaler),
    "MeanVarianceNormalization": (8, _mean_variance_normalization),
    "ParametricSoftplus": (9, _parametric_softplus),
    "Scale": (9, _scale),
    "ScaledTanh": (9, _scaled_tanh),
    "ThresholdedRelu": (9, _thresholded_relu),
}
"""By operator: the last opset with it, and what makes other nodes of it, given its attributes."""
