"""Attributes as AttributeProtos, of the type that the operator's schema asks for."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import onnx
import onnx.defs

from ...errors import GraphError
from ..graph import Attribute, Graph, MapType, Node, OptionalType, SequenceType, TensorType
from .tensor_protos import fill_tensor
from .types import fill_type

__all__ = ["GraphFiller", "fill_attribute"]

_Kind = onnx.AttributeProto
_Type = onnx.AttributeProto.AttributeType

_SINGLE_TO_LIST = {
    _Kind.INT: _Kind.INTS,
    _Kind.FLOAT: _Kind.FLOATS,
    _Kind.STRING: _Kind.STRINGS,
    _Kind.TENSOR: _Kind.TENSORS,
    _Kind.GRAPH: _Kind.GRAPHS,
    _Kind.TYPE_PROTO: _Kind.TYPE_PROTOS,
}


class GraphFiller(Protocol):
    """Writes the bodies among the attributes, and says whether large tensors are written."""

    is_inline: bool

    def fill_body(self, proto: onnx.GraphProto, body: Graph) -> None:
        """Write a body into an empty GraphProto."""


def fill_attribute(proto: onnx.AttributeProto, node: Node, name: str, filler: GraphFiller) -> None:
    """Write one attribute of a node; raises GraphError for content that ONNX cannot hold."""
    item = node.attributes[name]
    proto.name = name
    proto.type = kind = _kind(item, _schema_kinds(node.op_type, node.domain).get(name), node, name)
    if kind == _Kind.INT:
        proto.i = int(item)
    elif kind == _Kind.FLOAT:
        proto.f = float(item)
    elif kind == _Kind.STRING:
        proto.s = _bytes(item)
    elif kind == _Kind.TENSOR:
        fill_tensor(proto.t, "", item, filler.is_inline)
    elif kind == _Kind.GRAPH:
        filler.fill_body(proto.g, item)
    elif kind == _Kind.TYPE_PROTO:
        fill_type(proto.tp, item)
    elif kind == _Kind.INTS:
        proto.ints.extend(item if set(map(type, item)) == {int} else map(int, item))
    elif kind == _Kind.FLOATS:
        proto.floats.extend(item if set(map(type, item)) == {float} else map(float, item))
    elif kind == _Kind.STRINGS:
        known = {text: _bytes(text) for text in dict.fromkeys(item)}  # of a forest few differ
        proto.strings.extend([known[text] for text in item])
    elif kind == _Kind.TENSORS:
        for array in item:
            fill_tensor(proto.tensors.add(), "", array, filler.is_inline)
    elif kind == _Kind.GRAPHS:
        for body in item:
            filler.fill_body(proto.graphs.add(), body)
    else:
        for value_type in item:
            fill_type(proto.type_protos.add(), value_type)


def _kind(item: Attribute, wanted: _Type | None, node: Node, name: str) -> _Type:
    """Choose the type of an attribute by its content; the schema's where the content fits both."""
    found: _Type | None
    if isinstance(item, list | tuple):
        by_type = dict(zip(map(type, item), item, strict=True))
        kinds = {_single_kind(value) for value in by_type.values()}
        if kinds == {_Kind.INT, _Kind.FLOAT}:
            kinds = {_Kind.FLOAT}
        if not kinds:
            return wanted if wanted in _SINGLE_TO_LIST.values() and wanted else _Kind.INTS
        single = kinds.pop()
        found = _SINGLE_TO_LIST[single] if single is not None and not kinds else None
    else:
        found = _single_kind(item)
    if found is None:
        raise GraphError(
            f"attribute {name!r} of node {node.name!r} is a {type(item).__name__} that ONNX cannot "
            f"hold; give an int, float, str, array, graph or type, or a list of one kind"
        )
    is_whole = (found, wanted) in ((_Kind.INT, _Kind.FLOAT), (_Kind.INTS, _Kind.FLOATS))
    return wanted if is_whole and wanted is not None else found


def _single_kind(item: Attribute) -> _Type | None:
    if isinstance(item, int | np.integer | np.bool_):
        return _Kind.INT
    if isinstance(item, float | np.floating):
        return _Kind.FLOAT
    if isinstance(item, str | bytes):
        return _Kind.STRING
    if isinstance(item, np.ndarray):
        return _Kind.TENSOR
    if isinstance(item, Graph):
        return _Kind.GRAPH
    if isinstance(item, TensorType | SequenceType | OptionalType | MapType):
        return _Kind.TYPE_PROTO
    return None


def _bytes(item: str | bytes) -> bytes:
    return item.encode("utf-8") if isinstance(item, str) else item


@functools.cache
def _schema_kinds(op_type: str, domain: str) -> Mapping[str, _Type]:
    """Return the attribute types of the newest version of an operator; nothing if it is unknown."""
    if not onnx.defs.has(op_type, domain):
        return {}
    schema = onnx.defs.get_schema(op_type, domain=domain)
    kinds = {name: item.type.name for name, item in schema.attributes.items()}  # type: ignore[attr-defined]
    return {name: _Type.Value(kind) for name, kind in kinds.items()}
