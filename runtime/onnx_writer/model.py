"""Models and nodes as protos."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Literal

import onnx
import onnx.helper

from ..graph import Graph, Model, Node, Value
from .attributes import fill_attribute
from .tensor_protos import fill_tensor
from .types import fill_type

__all__ = ["FUSED_FROM_KEY", "ProtoWriter", "node_to_proto", "write_model"]

FUSED_FROM_KEY = "aioinfer.fused_from"
"""Node metadata that keeps ``Node.fused_from``, as a JSON list, where it is not just the name."""


def write_model(
    model: Model, *, weights: Literal["inline", "omit", "external"] = "inline"
) -> onnx.ModelProto:
    """Write a model as a proto that ``read_model`` reads back; the model is not changed.

    weights: "inline" copies all constants into the proto, which cannot be saved beyond 2 GB;
    "omit" writes of the larger ones only dtype and shape, to look at the graph and never run
    it; "external" does so with the larger initializers of the main graph only, for callers that
    give their bytes to what runs it: their ``data_location`` is EXTERNAL, and their names are kept.
    A value of a body is renamed if its name also stands for a value outside. Raises GraphError for
    an attribute that ONNX cannot hold.
    """
    return ProtoWriter(weights != "omit", has_own_weights=weights != "external").model(model)


def node_to_proto(node: Node, names: Mapping[Value, str] | None = None) -> onnx.NodeProto:
    """Write one node, bodies and all constants included.

    Values are called by their names, or as ``names`` says; captured values keep theirs in the
    bodies. Raises GraphError for an attribute that ONNX cannot hold.
    """
    writer = ProtoWriter(is_inline=True)
    writer.names.update(names or {})
    outer = {writer.name(value) for value in node.dependencies()}
    proto = onnx.NodeProto()
    writer.fill_node(proto, node, outer)
    return proto


class ProtoWriter:
    """Writes one model, and remembers under which name it wrote each value."""

    def __init__(self, is_inline: bool, has_own_weights: bool = True) -> None:
        self.is_inline = is_inline
        self._has_own_weights = has_own_weights
        self.names: dict[Value, str] = {}
        self._outer: Set[str] = frozenset()

    def name(self, value: Value) -> str:
        """The name under which a value is written."""
        return self.names.get(value, value.name)

    def model(self, model: Model) -> onnx.ModelProto:
        """Write a whole model."""
        proto = onnx.ModelProto(producer_name=model.producer)
        for domain, version in model.opsets.items():
            proto.opset_import.add(domain=domain, version=version)
        needed = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
        proto.ir_version = max(model.ir_version, needed)
        for key, text in model.metadata.items():
            proto.metadata_props.add(key=key, value=text)
        is_inline = self.is_inline and self._has_own_weights
        self._fill_graph(proto.graph, model.graph, frozenset(), is_inline)
        return proto

    def fill_body(self, proto: onnx.GraphProto, body: Graph) -> None:
        """Write a body of the node that is being written."""
        self._fill_graph(proto, body, self._outer, self.is_inline)

    def fill_node(self, proto: onnx.NodeProto, node: Node, outer: Set[str]) -> None:
        """Write a node into an empty NodeProto; outer: the names that its bodies cannot give."""
        proto.op_type, proto.domain, proto.name = node.op_type, node.domain, node.name
        proto.input.extend("" if value is None else self.name(value) for value in node.inputs)
        proto.output.extend(self.name(value) for value in node.outputs)
        for key in node.attributes:
            self._outer = outer  # a body that was just written has set its own
            fill_attribute(proto.attribute.add(), node, key, self)
        for key, text in node.metadata.items():
            proto.metadata_props.add(key=key, value=text)
        if node.fused_from != (node.name,):
            proto.metadata_props.add(key=FUSED_FROM_KEY, value=json.dumps(node.fused_from))

    def _fill_graph(
        self, proto: onnx.GraphProto, graph: Graph, outer: Set[str], is_inline: bool
    ) -> None:
        taken = self._claim_names(graph, outer)
        proto.name = graph.name
        for value in graph.inputs:
            self._fill_info(proto.input.add(), value)
        for value in graph.initializers.values():
            if value.constant is not None:
                name = self.name(value)
                fill_tensor(proto.initializer.add(), name, value.constant, is_inline)
        for node in graph.nodes:
            self.fill_node(proto.node.add(), node, taken)
            for value in node.outputs:
                if value.type is not None and not value.is_graph_output:
                    self._fill_info(proto.value_info.add(), value)
        for value in graph.outputs:
            self._fill_info(proto.output.add(), value)

    def _fill_info(self, proto: onnx.ValueInfoProto, value: Value) -> None:
        proto.name = self.name(value)
        if value.type is not None:
            fill_type(proto.type, value.type)

    def _claim_names(self, graph: Graph, outer: Set[str]) -> Set[str]:
        """Choose the names of what a graph defines, none of them an outer one; return all."""
        values = list(_defined_values(graph))
        taken = outer | {value.name for value in values}
        for value in values:
            if value.name in outer:
                number = 1
                while f"{value.name}_{number}" in taken:
                    number += 1
                self.names[value] = f"{value.name}_{number}"
                taken |= {self.names[value]}
        return taken


def _defined_values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.nodes:
        yield from node.outputs
