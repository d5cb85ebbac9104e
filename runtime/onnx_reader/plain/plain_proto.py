"""A model file decoded without onnx and protobuf: what ordinary models consist of, and no more.

An exported model is one graph of nodes with numbers, texts and tensors for attributes; its weights
apart it is small. That much is decoded here, straight from the wire format, and so are the bodies
of If, Loop and Scan. Whatever else a file may hold (functions, sparse tensors, strings, data in
other files, types that are no tensors), and whatever looks odd, raises :class:`NotPlainError`; onnx
then reads the file, and says what is wrong with it if something is.

Source: the field numbers of onnx.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ...graph import Attribute, TensorType
from ..wire.file_structure import LARGE_BYTES
from ..wire.limits import (
    check_depth,
    check_node_count,
    check_operator,
    graph_fields,
    model_fields,
    refuse_nameless,
)
from ..wire.wire_format import BYTES, Field, fields
from .plain_fields import Data, NotPlainError, cut, entry, floats, integer, integers, message
from .plain_tensors import Array, ReadRaw, copier, tensor, value_info

__all__ = ["PlainGraph", "PlainModel", "PlainNode", "decode_model"]

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 5, 6, 7, 8
_NODE_TEXTS = frozenset({1, 2, 3, 4, 7})
"""Inputs, outputs, name, operator and domain."""
_SHORT_TEXTS = {number << 3 | BYTES: number for number in _NODE_TEXTS}
"""By the byte that they begin with, if one of their length follows: nearly all that a node has."""

_ATTRIBUTE_FIELDS = {
    _FLOAT: 2, _INT: 3, _STRING: 4, _TENSOR: 5, _GRAPH: 6, _FLOATS: 7, _INTS: 8, _STRINGS: 9
}  # fmt: skip
_MOST_BODY_BYTES = 64 * LARGE_BYTES


class PlainNode:
    """A node as the file has it; inputs and outputs that are left out are empty texts."""

    __slots__ = (
        "attributes",
        "bodies",
        "domain",
        "inputs",
        "metadata",
        "name",
        "op_type",
        "outputs",
    )

    def __init__(self) -> None:
        self.bodies: dict[str, PlainGraph] = {}
        """The attributes that are graphs, which ``attributes`` lacks."""
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.name = self.op_type = self.domain = ""
        self.attributes: dict[str, Attribute] = {}
        self.metadata: dict[str, str] = {}


class PlainGraph:
    """A graph as the file has it, in the file's order."""

    __slots__ = ("initializers", "inputs", "name", "nodes", "outputs", "reads")

    def __init__(self) -> None:
        self.name = ""
        self.reads: set[str] = set()
        """The names that are used in it, also in bodies inside it."""
        self.nodes: list[PlainNode] = []
        self.initializers: list[tuple[str, Array | None]] = []
        """Without their content if nothing reads them."""
        self.inputs: list[tuple[str, TensorType | None]] = []
        """Those of a body need no type: they have that of what it is given."""
        self.outputs: list[tuple[str, TensorType | None]] = []


class PlainModel:
    """What a file says of a model."""

    __slots__ = ("graph", "ir_version", "metadata", "opsets", "producer")

    def __init__(self) -> None:
        self.graph = PlainGraph()
        self.ir_version = 0
        self.opsets: list[tuple[str, int]] = []
        self.producer = ["", ""]
        self.metadata: dict[str, str] = {}


def decode_model(
    data: Data, read_raw: ReadRaw, check_opsets: Callable[[Sequence[tuple[str, int]]], object]
) -> PlainModel:
    """Decode a file; the content of tensors is read with ``read_raw``.

    Raises NotPlainError for what is not plain or is damaged, LimitError for what is too large to
    read on, and what ``read_raw`` raises, and ``check_opsets`` before the graph is decoded.
    """
    try:
        return _Decoder(data, read_raw).model(check_opsets)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise NotPlainError(str(error)) from error


class _Decoder:
    """Decodes the messages of one file."""

    def __init__(self, data: Data, read_raw: ReadRaw, depth: int = 1, node_count: int = 0) -> None:
        self._data, self._read_raw = data, read_raw
        self._depth, self._node_count = depth, node_count

    def model(self, check_opsets: Callable[[Sequence[tuple[str, int]]], object]) -> PlainModel:
        model = PlainModel()
        graph: Field | None = None
        for item in model_fields(self._data, 0, len(self._data)):
            number = item.number
            if number == 7 and graph is None:
                graph = item
            elif number in (7, 25):  # a second graph, to be merged; functions
                raise NotPlainError("it has functions")
            elif number == 1:
                model.ir_version = integer(item)
            elif number in (2, 3):
                model.producer[number - 2] = self._text(item)
            elif number == 8:
                model.opsets.append(self._opset(item))
            elif number == 14:
                self._add_entry(model.metadata, item)
        if graph is None or model.ir_version < 1:
            raise NotPlainError("it has no graph or no version")
        check_opsets(model.opsets)
        self._graph(model.graph, message(graph))
        return model

    def _graph(self, graph: PlainGraph, place: Field) -> None:
        check_depth(self._depth)
        tensors: list[Field] = []
        for item in graph_fields(self._data, place.content, place.end):
            number = item.number
            if number == 1:
                node = self._node(cut(self._data, item))
                check_operator(node.op_type, len(graph.nodes), node.name)
                self._node_count += 1
                check_node_count(self._node_count)
                graph.nodes.append(node)
            elif number == 5:
                tensors.append(item)
            elif number == 11:
                name, known = value_info(cut(self._data, item))
                if not name:
                    refuse_nameless("input", len(graph.inputs))
                if known is None and self._depth == 1:
                    raise NotPlainError(f"input {name!r} has no type")
                graph.inputs.append((name, known))
            elif number == 12:
                graph.outputs.append(value_info(cut(self._data, item)))
            elif number == 2:
                graph.name = self._text(item)
            elif number == 15:
                raise NotPlainError("it has sparse tensors")
        graph.reads.update(name for node in graph.nodes for name in node.inputs)
        graph.reads.update(name for name, _ in graph.outputs)
        for node in graph.nodes:
            for body in node.bodies.values():
                graph.reads |= body.reads
        for item in tensors:
            name, array = tensor(self._data, item, self._read_raw, graph.reads)
            if not name:
                refuse_nameless("initializer", len(graph.initializers))
            graph.initializers.append((name, array))

    def _text(self, item: Field) -> str:
        return cut(self._data, item).decode()

    def _opset(self, item: Field) -> tuple[str, int]:
        domain, version = "", 0
        for part in fields(self._data, message(item).content, item.end):
            if part.number == 1:
                domain = self._text(part)
            elif part.number == 2:
                version = integer(part)
        return domain, version

    def _add_entry(self, entries: dict[str, str], item: Field) -> None:
        key, text = entry(cut(self._data, item))
        entries[key] = text

    def _node(self, data: bytes) -> PlainNode:
        node = PlainNode()
        place, end = 0, len(data)
        while place < end:
            number = _SHORT_TEXTS.get(data[place], 0)
            stop = place + 2 + data[place + 1] if number else 0
            if number and data[place + 1] < 0x80 and stop <= end:
                _add_text(node, number, data[place + 2 : stop].decode())
            else:
                item = next(fields(data, place, end))
                self._add_part(node, data, item)
                stop = item.end
            place = stop
        return node

    def _add_part(self, node: PlainNode, data: bytes, item: Field) -> None:
        number = item.number
        if number == 5:
            name, content = self._attribute(cut(data, item))
            if name in node.attributes or name in node.bodies:
                raise NotPlainError(f"attribute {name!r} is there twice")
            if isinstance(content, PlainGraph):
                node.bodies[name] = content
            else:
                node.attributes[name] = content
        elif number in _NODE_TEXTS:
            _add_text(node, number, cut(data, item).decode())
        elif number == 8:
            raise NotPlainError("it calls an overload")
        elif number == 9:
            key, text = entry(cut(data, item))
            node.metadata[key] = text

    def _attribute(self, data: bytes) -> tuple[str, Attribute | PlainGraph]:
        name, kind = "", 0
        parts: list[Field] = []
        for item in fields(data, 0, len(data)):
            if item.number == 1:
                name = cut(data, item).decode()
            elif item.number == 20:
                kind = integer(item)
            elif item.number != 13:
                parts.append(item)
        wanted = _ATTRIBUTE_FIELDS.get(kind)
        if wanted is None or any(part.number != wanted for part in parts):
            raise NotPlainError(f"attribute {name!r} is of a kind of its own")
        if kind in (_FLOATS, _INTS, _STRINGS):
            return name, _list(kind, data, parts)
        if kind == _GRAPH and len(parts) == 1:
            return name, self._body(data, parts[0])
        if kind == _TENSOR and len(parts) == 1:
            content = tensor(data, parts[0], copier(data))[1]
            assert content is not None
            return name, content
        return name, _single(kind, data, parts)

    def _body(self, data: bytes, place: Field) -> PlainGraph:
        if place.end - place.content > _MOST_BODY_BYTES:
            raise NotPlainError("it has a large body, which is not to be copied")
        inner, body = _Decoder(data, copier(data), self._depth + 1, self._node_count), PlainGraph()
        inner._graph(body, message(place))
        self._node_count = inner._node_count
        return body


def _add_text(node: PlainNode, number: int, text: str) -> None:
    if number == 1:
        node.inputs.append(text)
    elif number == 2:
        node.outputs.append(text)
    elif number == 3:
        node.name = text
    elif number == 4:
        node.op_type = text
    else:
        node.domain = text


def _list(kind: int, data: bytes, parts: list[Field]) -> list[Any]:
    if kind == _INTS:
        return [number for part in parts for number in integers(data, part)]
    if kind == _FLOATS:
        return [number for part in parts for number in floats(data, part)]
    return [cut(data, part).decode() for part in parts]


def _single(kind: int, data: bytes, parts: list[Field]) -> int | float | str:
    if kind == _STRING:
        return cut(data, parts[-1]).decode() if parts else ""
    if kind == _INT:
        return integer(parts[-1]) if parts else 0
    if kind == _FLOAT:
        return floats(data, parts[-1])[0] if parts else 0.0
    raise NotPlainError("an attribute has no content")
