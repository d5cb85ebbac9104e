"""Valid quantised models to begin with, as quantisers write them: what CPU runs in int8.

All scales that are given are powers of two and biases multiples of small ones, so that float32
makes no error, and zero points are even, as int8 adds them before it rounds: so all devices give
the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, helper
from onnx.reference import ReferenceEvaluator

from .bases import Base

__all__ = ["load_quantized_bases"]

Array = np.ndarray[Any, Any]
OPSET = 21


def load_quantized_bases() -> list[Base]:
    """Make them, the same ones every time."""
    return [
        _base(f"{name} of {kind.__name__}", nodes, {**_numbers(kind), **parameters})
        for kind in (np.uint8, np.int8)
        for name, nodes, parameters in (
            ("matmul", _wrapped(_node("MatMul", "dx", "dw", "m")), _weights(12, 16)),
            ("gemm", _wrapped(_node("Gemm", "dx", "dw", "b", "m")), _weights(12, 16)),
            ("relu", _wrapped(_node("MatMul", "dx", "dw", "n"), _node("Relu", "n", "m")), _PLAIN),
            ("sum", _wrapped(_node("MatMul", "dx", "dw", "n"), _node("Add", "n", "r", "m")), _SUM),
            ("convolution", _wrapped(_node("Conv", "dx", "dw", "b", "m", pads=[1] * 4), 0), _CONV),
            ("pool", _pooled(), {"x": _floats(1, 4, 6, 6)}),
            ("stored product", [_stored("QLinearMatMul")], _stored_numbers(kind, (5, 12))),
            ("stored convolution", [_stored("QLinearConv")], _stored_numbers(kind, (1, 4, 6, 6))),
            ("whole product", [_node("MatMulInteger", "q", "w", "zx", "y")], _whole(kind, 2)),
            ("whole convolution", [_node("ConvInteger", "q", "w", "zx", "y")], _whole(kind, 4)),
        )
    ] + [_base("numbers of a run", _dynamic(), {"x": _floats(5, 12), **_weights(12, 16)})]


def _node(op_type: str, *names: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, names[:-1], names[-1:], **attributes)


def _wrapped(*inner: NodeProto | int) -> list[NodeProto]:
    """Put stored numbers around nodes from ``dx`` and ``dw`` to ``m``; a number: the axis."""
    axis = next((item for item in inner if isinstance(item, int)), 1)
    return [
        _node("QuantizeLinear", "x", "sx", "zx", "qx"),
        _node("DequantizeLinear", "qx", "sx", "zx", "dx"),
        _node("DequantizeLinear", "w", "sw", "zw", "dw", axis=axis),
        *(item for item in inner if not isinstance(item, int)),
        _node("QuantizeLinear", "m", "sy", "zx", "qy"),
        _node("DequantizeLinear", "qy", "sy", "zx", "y"),
    ]


def _pooled() -> list[NodeProto]:
    return [
        _node("QuantizeLinear", "x", "sx", "zx", "qx"),
        _node("DequantizeLinear", "qx", "sx", "zx", "dx"),
        _node("MaxPool", "dx", "p", kernel_shape=[2, 2], strides=[2, 2]),
        _node("QuantizeLinear", "p", "sx", "zx", "qp"),
        _node("DequantizeLinear", "qp", "sx", "zx", "y"),
    ]


def _stored(op_type: str) -> NodeProto:
    names = ("q", "sx", "zx", "w", "sw", "zw", "sy", "zx", "y")
    return _node(op_type, *names)


def _dynamic() -> list[NodeProto]:
    return [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        _node("MatMulInteger", "q", "w", "z", "i"),
        _node("Cast", "i", "c", to=TensorProto.FLOAT),
        _node("Mul", "s", "sw", "f"),
        _node("Mul", "c", "f", "m"),
        _node("Add", "m", "b", "y"),
    ]


def _floats(*shape: int) -> Array:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _scales(count: int) -> Array:
    return np.float32(2.0) ** (-6 - np.arange(count) % 2).astype(np.float32)


def _biases(count: int) -> Array:
    return (np.arange(count) % 17 - 8).astype(np.float32) / np.float32(32)


def _stored_weights(*shape: int) -> Array:
    return (np.arange(np.prod(shape)) % 251 - 125).astype(np.int8).reshape(shape)


def _weights(rows: int, columns: int) -> dict[str, Array]:
    return {
        "x": _floats(5, rows),
        "w": _stored_weights(rows, columns),
        "sw": _scales(columns),
        "zw": np.zeros(columns, np.int8),
        "b": _biases(columns),
    }


def _numbers(kind: type) -> dict[str, Array]:
    scale = {"sx": np.float32(2**-7), "sy": np.float32(2**-4)}
    point = np.array(128 if kind is np.uint8 else 4, kind)
    return {**{name: np.array(number) for name, number in scale.items()}, "zx": point}


def _stored_numbers(kind: type, shape: tuple[int, ...]) -> dict[str, Array]:
    numbers = (np.arange(np.prod(shape)) % 100).astype(kind).reshape(shape)
    weights = _stored_weights(12, 16) if len(shape) == 2 else _stored_weights(8, 4, 3, 3)
    one = {"sw": np.array(np.float32(2**-6)), "zw": np.array(0, np.int8)}
    return {**_numbers(kind), "q": numbers, "w": weights, **one}


def _whole(kind: type, rank: int) -> dict[str, Array]:
    numbers = _stored_numbers(kind, (5, 12) if rank == 2 else (1, 4, 6, 6))
    return {name: numbers[name] for name in ("q", "w", "zx")}


_PLAIN = _weights(12, 16)
_SUM = {**_PLAIN, "r": _biases(80).reshape(5, 16)}
_CONV = {
    "x": _floats(1, 4, 6, 6),
    "w": _stored_weights(8, 4, 3, 3),
    "sw": _scales(8),
    "zw": np.zeros(8, np.int8),
    "b": _biases(8),
}


def _base(name: str, nodes: Sequence[NodeProto], parameters: Mapping[str, Array]) -> Base:
    """Make a base of what the nodes read."""
    read = {source for node in nodes for source in node.input}
    inputs = {key: array for key, array in parameters.items() if key in read}
    types = {
        key: helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for key, array in inputs.items()
    }
    infos = [helper.make_value_info(key, types[key]) for key in inputs]
    graph = helper.make_graph(nodes, name, infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    (result,) = ReferenceEvaluator(model).run(None, inputs)
    made = np.asarray(result)
    types["y"] = _type_of(made)
    graph.output[0].type.CopyFrom(types["y"])
    model.graph.CopyFrom(graph)
    return Base(name, name, model, inputs, {"y": made}, None, types)


def _type_of(array: Array) -> TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
