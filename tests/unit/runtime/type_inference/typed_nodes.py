"""One node with inputs of given types, and what its rule and onnx make of it.

Types are written as text: ``float32[n,3,?]``, where ``?`` is an open length.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from aioinfer.runtime.graph import Dim, DType, Node, TensorType, Value
from aioinfer.runtime.onnx_writer.types import fill_type, type_from_proto
from aioinfer.runtime.type_inference import ContradictionError, ShapeContent, find_rule

Given = str | np.ndarray | None
"""An input: its type, its content, or left out."""


def parse_type(text: str) -> TensorType:
    dtype, _, rest = text.partition("[")
    dims = [_dim(item) for item in rest.removesuffix("]").split(",") if item]
    return TensorType(DType[dtype.upper()], tuple(dims))


def _dim(text: str) -> Dim:
    return None if text == "?" else int(text) if text.lstrip("-").isdecimal() else text


def make_node(
    op_type: str, inputs: Sequence[Given], attributes: Mapping[str, Any], outputs: int = 1
) -> Node:
    values = [_value(f"in{index}", given) for index, given in enumerate(inputs)]
    made = [Value(f"out{index}") for index in range(outputs)]
    return Node(op_type, values, made, attributes, name="node")


def _value(name: str, given: Given) -> Value | None:
    if given is None:
        return None
    if isinstance(given, str):
        return Value(name, parse_type(given))
    return Value(name, TensorType(DType.of(given.dtype), given.shape), given)


def ruled(
    op_type: str, inputs: Sequence[Given], attributes: Mapping[str, Any], outputs: int = 1
) -> list[str] | None:
    """Write the types that the operator's rule gives; None where it gives none.

    ``test_contradictions`` tells apart what it refuses and what it cannot tell.
    """
    node = make_node(op_type, inputs, attributes, outputs)
    rule = find_rule(node)
    assert rule is not None
    try:
        types = rule(node, ShapeContent())
    except ContradictionError:
        return None
    return None if types is None else [str(found) for found in types][:outputs]


def inferred_by_onnx(
    op_type: str, inputs: Sequence[Given], attributes: Mapping[str, Any], outputs: int = 1
) -> list[str]:
    """Write the types that onnx infers; raises where the node contradicts itself."""
    given = {f"in{index}": item for index, item in enumerate(inputs) if item is not None}
    names = [f"in{index}" if item is not None else "" for index, item in enumerate(inputs)]
    made = [f"out{index}" for index in range(outputs)]
    infos = []
    for name, item in given.items():
        if isinstance(item, str):
            infos.append(onnx.ValueInfoProto(name=name))
            fill_type(infos[-1].type, parse_type(item))
    constants = [
        onnx.numpy_helper.from_array(item, name)
        for name, item in given.items()
        if not isinstance(item, str)
    ]
    node = helper.make_node(op_type, names, made, "node", **attributes)
    outs = [onnx.ValueInfoProto(name=name) for name in made]
    model = helper.make_model(helper.make_graph([node], "graph", infos, outs, constants))
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    return [str(type_from_proto(info.type, info.name)) for info in model.graph.output]
