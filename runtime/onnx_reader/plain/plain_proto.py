"""A model file decoded without onnx and protobuf: what ordinary models consist of, and no more.

An exported model is one graph of nodes with numbers, texts and tensors for attributes; its weights
apart it is small. That much is decoded here, straight from the wire format. Whatever else a file
may hold (bodies, functions, sparse tensors, strings, data in other files, types that are no
tensors), and whatever looks odd, raises :class:`NotPlainError`; onnx then reads the file, and says
what is wrong with it if something is.

Source: the field numbers of onnx.proto.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from ...graph import Attribute, Dim, DType, TensorType
from ..wire.limits import check_operator, check_type, graph_fields, model_fields, refuse_nameless
from ..wire.wire_format import BYTES, FIXED32, VARINT, Field, fields, read_varint

__all__ = ["NotPlainError", "PlainGraph", "PlainModel", "PlainNode", "ReadRaw", "decode_model"]

Data = bytes | mmap.mmap
Array = np.ndarray[Any, Any]
ReadRaw = Callable[[int, int], Array]
"""``read(start, end)`` gives the bytes of a file from start to end as a uint8 vector."""

_FLOAT, _INT, _STRING, _TENSOR, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 6, 7, 8
_NODE_TEXTS = frozenset({1, 2, 3, 4, 7})
"""Inputs, outputs, name, operator and domain."""
_SHORT_TEXTS = {number << 3 | BYTES: number for number in _NODE_TEXTS}
"""By the byte that they begin with, if one of their length follows: nearly all that a node has."""

_ATTRIBUTE_FIELDS = {
    _FLOAT: 2, _INT: 3, _STRING: 4, _TENSOR: 5, _FLOATS: 7, _INTS: 8, _STRINGS: 9
}  # fmt: skip
_READABLE_TYPES = frozenset(DType) - {
    DType.STRING, DType.UINT4, DType.INT4, DType.FLOAT4E2M1, DType.UINT2, DType.INT2
}  # fmt: skip
_PLAIN_TYPES = {dtype.value: dtype for dtype in _READABLE_TYPES}
_SMALL_BYTES = 4096  # so much is copied, which is quicker to walk than a mapped file


class NotPlainError(Exception):
    """Something here is for onnx to read, or to complain about."""


class PlainNode:
    """A node as the file has it; inputs and outputs that are left out are empty texts."""

    __slots__ = ("attributes", "domain", "inputs", "metadata", "name", "op_type", "outputs")

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.name = self.op_type = self.domain = ""
        self.attributes: dict[str, Attribute] = {}
        self.metadata: dict[str, str] = {}


class PlainGraph:
    """A graph as the file has it, in the file's order."""

    __slots__ = ("initializers", "inputs", "name", "nodes", "outputs")

    def __init__(self) -> None:
        self.name = ""
        self.nodes: list[PlainNode] = []
        self.initializers: list[tuple[str, Array | None]] = []
        """Without their content if nothing reads them."""
        self.inputs: list[tuple[str, TensorType]] = []
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

    def __init__(self, data: Data, read_raw: ReadRaw) -> None:
        self._data, self._read_raw = data, read_raw

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
                model.ir_version = _integer(item)
            elif number in (2, 3):
                model.producer[number - 2] = self._text(item)
            elif number == 8:
                model.opsets.append(self._opset(item))
            elif number == 14:
                self._add_entry(model.metadata, item)
        if graph is None or model.ir_version < 1:
            raise NotPlainError("it has no graph or no version")
        check_opsets(model.opsets)
        self._graph(model.graph, _bytes(graph))
        return model

    def _graph(self, graph: PlainGraph, place: Field) -> None:
        tensors: list[Field] = []
        for item in graph_fields(self._data, place.content, place.end):
            number = item.number
            if number == 1:
                node = self._node(self._cut(item))
                check_operator(node.op_type, len(graph.nodes), node.name)
                graph.nodes.append(node)
            elif number == 5:
                tensors.append(item)
            elif number == 11:
                name, known = self._value_info(self._cut(item))
                if not name:
                    refuse_nameless("input", len(graph.inputs))
                if known is None:
                    raise NotPlainError(f"input {name!r} has no type")
                graph.inputs.append((name, known))
            elif number == 12:
                graph.outputs.append(self._value_info(self._cut(item)))
            elif number == 2:
                graph.name = self._text(item)
            elif number == 15:
                raise NotPlainError("it has sparse tensors")
        read = {name for node in graph.nodes for name in node.inputs}
        read.update(name for name, _ in graph.outputs)
        for item in tensors:
            name, array = self._tensor(item, read)
            if not name:
                refuse_nameless("initializer", len(graph.initializers))
            graph.initializers.append((name, array))

    def _cut(self, item: Field) -> bytes:
        """Copy a small message, which is quicker to walk than a mapped file."""
        return self._data[_bytes(item).content : item.end]

    def _text(self, item: Field) -> str:
        return self._cut(item).decode()

    def _opset(self, item: Field) -> tuple[str, int]:
        domain, version = "", 0
        for part in fields(self._data, _bytes(item).content, item.end):
            if part.number == 1:
                domain = self._text(part)
            elif part.number == 2:
                version = _integer(part)
        return domain, version

    def _add_entry(self, entries: dict[str, str], item: Field) -> None:
        key, text = _entry(self._cut(item))
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
            name, content = self._attribute(_cut(data, item))
            if name in node.attributes:
                raise NotPlainError(f"attribute {name!r} is there twice")
            node.attributes[name] = content
        elif number in _NODE_TEXTS:
            _add_text(node, number, _cut(data, item).decode())
        elif number == 8:
            raise NotPlainError("it calls an overload")
        elif number == 9:
            key, text = _entry(_cut(data, item))
            node.metadata[key] = text

    def _attribute(self, data: bytes) -> tuple[str, Attribute]:
        name, kind = "", 0
        parts: list[Field] = []
        for item in fields(data, 0, len(data)):
            if item.number == 1:
                name = _cut(data, item).decode()
            elif item.number == 20:
                kind = _integer(item)
            elif item.number != 13:
                parts.append(item)
        wanted = _ATTRIBUTE_FIELDS.get(kind)
        if wanted is None or any(part.number != wanted for part in parts):
            raise NotPlainError(f"attribute {name!r} is of a kind of its own")
        if kind in (_FLOATS, _INTS, _STRINGS):
            return name, _list(kind, data, parts)
        if kind == _TENSOR and len(parts) == 1:
            content = _Decoder(data, _copier(data))._tensor(parts[0])[1]
            assert content is not None
            return name, content
        return name, _single(kind, data, parts)

    def _tensor(self, place: Field, read: Container[str] | None = None) -> tuple[str, Array | None]:
        """Return a tensor's name, and its content, or None if the name is not in ``read``."""
        data, shift = self._data, 0
        start, end = _bytes(place).content, place.end
        if end - start < _SMALL_BYTES:
            data, shift = data[start:end], start
        name, number = "", 0
        dims: list[int] = []
        content: Field | None = None
        for item in fields(data, start - shift, end - shift):
            field_number = item.number
            if field_number == 1:
                dims += _integers(data, item)
            elif field_number == 2:
                number = _integer(item)
            elif field_number == 8:
                name = data[_bytes(item).content : item.end].decode()
            elif field_number in (4, 5, 7, 9, 10) and content is None:
                content = _bytes(item)
            elif field_number not in (12, 16) and not (field_number == 14 and not item.value):
                raise NotPlainError(f"tensor {name!r} has its data elsewhere, or in pieces")
        check_type(number, name)
        dtype = _PLAIN_TYPES.get(number)
        if dtype is None or (dims and min(dims) < 0):
            raise NotPlainError(f"tensor {name!r} is not of a plain type")
        is_read = read is None or name in read
        if content is None or content.number == 9:
            at = (0, 0) if content is None else (content.content + shift, content.end + shift)
            if at[1] - at[0] != math.prod(dims) * dtype.numpy.itemsize:
                raise NotPlainError(f"tensor {name!r} has more or less data than its shape")
            if not is_read:
                return name, None
            raw = self._read_raw(*at) if at[1] > at[0] else np.empty(0, np.uint8)
        else:
            raw = _typed(data, dtype, content)
        array = _array(dtype, dims, raw)
        return name, array if is_read else None

    def _value_info(self, data: bytes) -> tuple[str, TensorType | None]:
        name, known = "", None
        for item in fields(data, 0, len(data)):
            if item.number == 1:
                name = _cut(data, item).decode()
            elif item.number == 2:
                known = _type(_cut(data, item))
        return name, known


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


def _array(dtype: DType, dims: list[int], raw: Array) -> Array:
    array = (raw != 0) if dtype is DType.BOOL else raw.view(dtype.numpy)
    array = array.reshape(dims)
    array.flags.writeable = False
    return array


def _copier(data: bytes) -> ReadRaw:
    return lambda start, end: np.frombuffer(data, np.uint8, end - start, start).copy()


def _bytes(item: Field) -> Field:
    if item.wire_type != BYTES:
        raise NotPlainError(f"field {item.number} is no message")
    return item


def _cut(data: bytes, item: Field) -> bytes:
    return data[_bytes(item).content : item.end]


def _integer(item: Field) -> int:
    """Return a number of 64 bits with its sign."""
    if item.wire_type != VARINT:
        raise NotPlainError(f"field {item.number} is no number")
    return item.value - (1 << 64) if item.value >> 63 else item.value


def _integers(data: Data, item: Field) -> list[int]:
    """Return one number, or several that are packed."""
    if item.wire_type == VARINT:
        return [_integer(item)]
    found = []
    place = _bytes(item).content
    while place < item.end:
        value, place = read_varint(data, place)
        found.append(value - (1 << 64) if value >> 63 else value)
    if place != item.end:
        raise NotPlainError("a number sticks out of its list")
    return found


def _floats(data: bytes, item: Field) -> list[float]:
    if item.wire_type != FIXED32:
        _bytes(item)
    count = (item.end - item.content) // 4
    return list(struct.unpack_from(f"<{count}f", data[item.content : item.end]))


def _list(kind: int, data: bytes, parts: list[Field]) -> list[Any]:
    if kind == _INTS:
        return [number for part in parts for number in _integers(data, part)]
    if kind == _FLOATS:
        return [number for part in parts for number in _floats(data, part)]
    return [_cut(data, part).decode() for part in parts]


def _single(kind: int, data: bytes, parts: list[Field]) -> int | float | str:
    if kind == _STRING:
        return _cut(data, parts[-1]).decode() if parts else ""
    if kind == _INT:
        return _integer(parts[-1]) if parts else 0
    if kind == _FLOAT:
        return _floats(data, parts[-1])[0] if parts else 0.0
    raise NotPlainError("an attribute has no content")


def _typed(data: Data, dtype: DType, content: Field) -> Array:
    """Return the elements, as bytes, of a tensor whose data is a list of numbers."""
    if (content.number, dtype) in ((4, DType.FLOAT32), (10, DType.FLOAT64)):
        return np.frombuffer(data[content.content : content.end], np.uint8).copy()
    is_int64 = content.number == 7 and dtype is DType.INT64
    is_int32 = content.number == 5 and dtype in (DType.INT32, DType.INT8, DType.UINT8, DType.BOOL)
    if not (is_int64 or is_int32):
        raise NotPlainError("a tensor holds its numbers in an unusual way")
    numbers = np.array(_integers(data, content), np.int64)
    stored = np.dtype(np.uint8) if dtype is DType.BOOL else dtype.numpy
    elements = numbers.astype(stored)
    if not np.array_equal(elements, numbers):
        raise NotPlainError("a number does not fit its type")
    return elements.view(np.uint8)


def _entry(data: bytes) -> tuple[str, str]:
    pair = {1: "", 2: ""}
    for item in fields(data, 0, len(data)):
        pair[item.number] = _cut(data, item).decode()
    return pair[1], pair[2]


def _type(data: bytes) -> TensorType | None:
    """Read a TypeProto that holds a tensor; None where it holds nothing."""
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            return _tensor_type(_cut(data, item))
        if item.number != 6:
            raise NotPlainError("a value is no tensor")
    return None


def _tensor_type(data: bytes) -> TensorType | None:
    number, shape = 0, None
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            number = _integer(item)
        elif item.number == 2:
            shape = _shape(_cut(data, item))
    return TensorType(DType(number), shape) if number else None


def _shape(data: bytes) -> tuple[Dim, ...]:
    return tuple([_dim(_cut(data, item)) for item in fields(data, 0, len(data))])


def _dim(data: bytes) -> Dim:
    for item in fields(data, 0, len(data)):
        if item.number == 1:
            length = _integer(item)
            return length if length >= 0 else None  # old exporters write -1 for an unknown one
        if item.number == 2:
            return _cut(data, item).decode() or None
    return None
