"""The intermediate representation, built from a converted proto."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from ....errors import ModelError
from ...graph import Attribute, Graph, Node, TensorType, Value, ValueType
from ...graph.dtype import DType
from ...onnx_writer.types import type_from_proto
from ..data.constants import constant_array
from ..data.weights import Weights
from ..origins import Origins

__all__ = ["build_graph"]

_Scope = Mapping[str, Value]


def build_graph(proto: onnx.GraphProto, weights: Weights, origins: Origins) -> Graph:
    """Make the graph of a proto whose nodes are in order, with origins and all outputs named.

    Constant nodes become initializers. An input that is also an initializer is a constant.
    """
    return _Builder(weights, origins).graph(proto, {})


class _Builder:
    """Where the parts of one model come from while its graphs are built, outermost first."""

    def __init__(self, weights: Weights, origins: Origins) -> None:
        self._weights, self._origins = weights, origins

    def graph(self, proto: onnx.GraphProto, outer: _Scope) -> Graph:
        types = _types(proto)
        graph = Graph(proto.name)
        scope = dict(outer)
        for tensor in proto.initializer:
            constant = self._constant(tensor.name, self._weights.array(tensor))
            scope[tensor.name] = graph.add_initializer(constant)
        for item in proto.input:
            if item.name not in graph.initializers:
                value = scope[item.name] = Value(item.name, types.get(item.name))
                graph.inputs.append(value)
        for node in proto.node:
            array = self._constant_array(node)
            if array is not None:
                constant = self._constant(node.output[0], array)
                scope[constant.name] = graph.add_initializer(constant)
            else:
                graph.append(self._node(node, types, scope))
        graph.outputs = [scope[item.name] for item in proto.output]
        return graph

    def _constant(self, name: str, array: np.ndarray) -> Value:
        return Value(name, TensorType(DType.of(array.dtype), array.shape), array)

    def _node(
        self, proto: onnx.NodeProto, types: Mapping[str, ValueType | None], scope: dict[str, Value]
    ) -> Node:
        outputs = [Value(name, types.get(name)) for name in proto.output]
        origin = self._origins[proto.name]
        node = Node(
            proto.op_type,
            [scope[name] if name else None for name in proto.input],
            outputs,
            {item.name: self._attribute(item, proto.name, scope) for item in proto.attribute},
            name=proto.name,
            domain=proto.domain,
            fused_from=origin.fused_from,
            metadata=origin.metadata,
        )
        scope.update(zip(proto.output, outputs, strict=True))
        return node

    def _constant_array(self, node: onnx.NodeProto) -> np.ndarray | None:
        """Return the content of a Constant node; None for any other node."""
        if node.op_type != "Constant" or node.domain:
            return None
        if len(node.output) != 1 or not node.output[0]:
            raise ModelError(f"Constant {node.name!r} needs one output")
        attributes = {item.name: self._attribute(item, node.name, {}) for item in node.attribute}
        return constant_array(node.name, attributes)

    def _attribute(self, item: onnx.AttributeProto, node: str, scope: _Scope) -> Attribute:
        place = f"attribute {item.name!r} of node {node!r}"
        kind = item.type
        if item.ref_attr_name:
            raise ModelError(f"{place} refers to one of a function, but stands in none")
        if kind == onnx.AttributeProto.FLOAT:
            return item.f
        if kind == onnx.AttributeProto.INT:
            return item.i
        if kind == onnx.AttributeProto.STRING:
            return _text(item.s)
        if kind == onnx.AttributeProto.TENSOR:
            return self._weights.array(item.t)
        if kind == onnx.AttributeProto.GRAPH:
            return self.graph(item.g, scope)
        if kind == onnx.AttributeProto.TYPE_PROTO:
            return type_from_proto(item.tp, place)
        if kind == onnx.AttributeProto.FLOATS:
            return list(item.floats)
        if kind == onnx.AttributeProto.INTS:
            return list(item.ints)
        if kind == onnx.AttributeProto.STRINGS:
            texts = list(item.strings)  # of a forest many, and few different ones
            known = {text: _text(text) for text in dict.fromkeys(texts)}
            return [known[text] for text in texts]
        if kind == onnx.AttributeProto.TENSORS:
            return [self._weights.array(tensor) for tensor in item.tensors]
        if kind == onnx.AttributeProto.GRAPHS:
            return [self.graph(graph, scope) for graph in item.graphs]
        if kind == onnx.AttributeProto.TYPE_PROTOS:
            return [type_from_proto(proto, place) for proto in item.type_protos]
        raise ModelError(f"{place} has no type that ONNX knows ({kind})")


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content


def _types(proto: onnx.GraphProto) -> dict[str, ValueType | None]:
    """Read the types that a graph gives to its values; what it declares counts last."""
    found: dict[str, ValueType | None] = {}
    for group in (proto.value_info, proto.output, proto.input):
        for item in group:
            found[item.name] = type_from_proto(item.type, f"value {item.name!r}")
    return found
