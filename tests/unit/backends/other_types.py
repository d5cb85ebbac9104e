"""Models as they would be if what is float32 in them were another type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["array_in", "in_type"]

_TYPES = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that hold an element type."""


def in_type(model: onnx.ModelProto, dtype: Any) -> onnx.ModelProto:
    """Return a copy in which what is float32 has numpy's ``dtype``; constants are cast."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kind = np.dtype(dtype)
    _change_graph(made.graph, kind)
    for function in made.functions:
        _change_nodes(function.node, kind)
    return made


def array_in(array: Any, dtype: Any) -> Any:
    """Cast what is float32; all else stays as it is."""
    is_single = isinstance(array, np.ndarray) and array.dtype == np.float32
    return array.astype(dtype) if is_single else array


def _number(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _change_graph(graph: onnx.GraphProto, dtype: np.dtype[Any]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _change_type(value.type, dtype)
    for tensor in graph.initializer:
        _change_tensor(tensor, dtype)
    _change_nodes(graph.node, dtype)


def _change_type(kind: onnx.TypeProto, dtype: np.dtype[Any]) -> None:
    if kind.HasField("sequence_type"):
        _change_type(kind.sequence_type.elem_type, dtype)
    elif kind.HasField("optional_type"):
        _change_type(kind.optional_type.elem_type, dtype)
    elif kind.HasField("tensor_type") and kind.tensor_type.elem_type == TensorProto.FLOAT:
        kind.tensor_type.elem_type = _number(dtype)


def _change_tensor(tensor: onnx.TensorProto, dtype: np.dtype[Any]) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _change_nodes(nodes: Iterable[onnx.NodeProto], dtype: np.dtype[Any]) -> None:
    for node in nodes:
        if node.op_type == "ConstantOfShape" and not node.attribute:
            zero = numpy_helper.from_array(np.zeros(1, dtype))
            node.attribute.append(helper.make_attribute("value", zero))
        for attribute in list(node.attribute):
            if attribute.HasField("t"):
                _change_tensor(attribute.t, dtype)
            if attribute.HasField("g"):
                _change_graph(attribute.g, dtype)
            if attribute.name in _TYPES and attribute.i == TensorProto.FLOAT:
                attribute.i = _number(dtype)
            if node.op_type == "Constant" and attribute.name.startswith("value_float"):
                held = np.array(helper.get_attribute_value(attribute), dtype)
                node.attribute.remove(attribute)
                made = helper.make_attribute("value", numpy_helper.from_array(held))
                node.attribute.append(made)
