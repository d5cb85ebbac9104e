"""How large a model may be that is read: far beyond what is exported, far below what hurts."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....errors import ModelError
from .wire_format import BYTES, Field, fields

if TYPE_CHECKING:
    import onnx

__all__ = [
    "MOST_DEPTH",
    "MOST_ENTRIES",
    "MOST_NODES",
    "MOST_TENSORS",
    "LimitError",
    "check_bytes",
    "check_count",
    "check_depth",
    "check_limits",
    "check_node_count",
    "check_operator",
    "check_type",
    "graph_fields",
    "model_fields",
    "refuse_nameless",
]

MOST_NODES = 2_000_000
"""Nodes of a model, those in bodies included; loading takes some 100 us and 2 kB for each."""
MOST_TENSORS = 4_000_000
"""Initializers, inputs, outputs and declared values of one graph, each."""
MOST_ENTRIES = 100_000
"""What a model has beside its graph: functions, opsets, metadata and the like, together."""
MOST_DEPTH = 31
"""Bodies of control flow inside each other: each is three messages, of which protobuf reads 100."""


_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_KINDS = {
    _NODE: "nodes", _INITIALIZER: "initializers", 10: "texts", _INPUT: "inputs",
    _OUTPUT: "outputs", 13: "declared values", 14: "quantization notes",
    15: "sparse initializers", 16: "metadata entries",
}  # fmt: skip


_FUNCTION, _TRAINING, _FUNCTION_NODE = 25, 20, 7
_MODEL_PARTS = frozenset({7, _TRAINING, _FUNCTION})
_TRAINING_GRAPHS = frozenset({1, 2})
_ATTRIBUTES = frozenset({5})
_BODIES = frozenset({6, 11})


class LimitError(ModelError):
    """A model is larger than what is read, or damaged so that reading on makes no sense."""


def check_count(what: str, count: int, most: int, way_out: str = "split the model") -> None:
    """Raise LimitError for too many of something."""
    if count > most:
        raise LimitError(
            f"has over {most} {what}, and aioinfer reads no more; is the file damaged? If it is "
            f"not, {way_out} and run its parts one after the other"
        )


def check_node_count(count: int) -> None:
    """Raise LimitError for too many nodes of a model."""
    check_count("nodes", count, MOST_NODES)


def check_depth(depth: int) -> None:
    """Raise LimitError for a graph inside too many others; the main graph is of depth 1."""
    way_out = "join conditions of nested Ifs by And, or split the model"
    check_count("bodies inside each other", depth - 1, MOST_DEPTH, way_out)


def model_fields(data: bytes | mmap.mmap, start: int, end: int) -> Iterator[Field]:
    """Walk the fields of a model as ``fields`` does; raises LimitError for one too many."""
    for count, item in enumerate(fields(data, start, end), 1):
        if count > MOST_ENTRIES:
            check_count("entries beside its graph", count, MOST_ENTRIES)
        yield item


def graph_fields(data: bytes | mmap.mmap, start: int, end: int) -> Iterator[Field]:
    """Walk the fields of a graph as ``fields`` does, and look at each only from outside.

    Raises LimitError for the first that is one too many of its kind, or has nothing in it and must
    have: no reader has to make anything of what comes before.
    """
    counts = dict.fromkeys(_KINDS, 0)
    others = 0
    for item in fields(data, start, end):
        number = item.number
        if number in counts:
            counts[number] = count = counts[number] + 1
            most = MOST_NODES if number == _NODE else MOST_TENSORS
            if count > most:
                check_count(_KINDS[number], count, most)
            if item.content == item.end and item.wire_type == BYTES:
                _refuse_empty(number, count - 1)
        else:
            others += 1
            if others > MOST_ENTRIES:
                check_count("entries that ONNX does not know", others, MOST_ENTRIES)
        yield item


def _refuse_empty(number: int, index: int) -> None:
    if number == _NODE:
        check_operator("", index, "")
    elif number == _INITIALIZER:
        check_type(0, "")
    elif number in (_INPUT, _OUTPUT):
        refuse_nameless(_KINDS[number][:-1], index)


def check_bytes(data: bytes) -> None:
    """Do as ``check_limits`` for a file that protobuf has not parsed yet, functions included.

    What is damaged is left to the parser. Memory does not grow with the nodes.
    """
    try:
        _check_bytes(data)
    except (IndexError, ValueError):
        return


def _check_bytes(data: bytes) -> None:
    count = 0
    waiting: list[tuple[Iterator[Field], int, int]] = []
    for part in _messages(model_fields(data, 0, len(data)), _MODEL_PARTS):
        if part.number == _FUNCTION:
            waiting.append((fields(data, part.content, part.end), _FUNCTION_NODE, 1))
        elif part.number == _TRAINING:
            parts = _inner(data, part, _TRAINING_GRAPHS)
            waiting += [(graph_fields(data, at.content, at.end), _NODE, 1) for at in parts]
        else:
            waiting.append((graph_fields(data, part.content, part.end), _NODE, 1))
    while waiting:
        items, number, depth = waiting.pop()
        check_depth(depth)
        for node in items:
            if node.number != number or node.wire_type != BYTES:
                continue
            count += 1
            check_node_count(count)
            for attribute in _inner(data, node, _ATTRIBUTES):
                for body in _inner(data, attribute, _BODIES):
                    inner = graph_fields(data, body.content, body.end)
                    waiting.append((inner, _NODE, depth + 1))


def _messages(items: Iterator[Field], numbers: frozenset[int]) -> Iterator[Field]:
    return (item for item in items if item.number in numbers and item.wire_type == BYTES)


def _inner(data: bytes, place: Field, numbers: frozenset[int]) -> Iterator[Field]:
    return _messages(fields(data, place.content, place.end, numbers), numbers)


def check_limits(graph: onnx.GraphProto) -> None:
    """Raise LimitError for a graph that is too large, too deep, or has a node without operator."""
    waiting = [(graph, 1)]
    count = 0
    while waiting:
        inner, depth = waiting.pop()
        check_depth(depth)
        lists: Sequence[tuple[str, Sequence[object]]] = (
            ("initializers in a graph", inner.initializer),
            ("sparse initializers in a graph", inner.sparse_initializer),
            ("inputs of a graph", inner.input),
            ("outputs of a graph", inner.output),
            ("values declared in a graph", inner.value_info),
        )
        for what, items in lists:
            check_count(what, len(items), MOST_TENSORS)
        count += len(inner.node)
        check_node_count(count)
        for index, node in enumerate(inner.node):
            check_operator(node.op_type, index, node.name)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append((attribute.g, depth + 1))
                waiting.extend((body, depth + 1) for body in attribute.graphs)


def check_operator(op_type: str, index: int, name: str) -> None:
    """Raise LimitError for a node that names no operator."""
    if not op_type:
        label = f" ({name!r})" if name else ""
        raise LimitError(
            f"has a node, number {index}{label} of its graph, that names no operator; the file is "
            f"damaged, export the model again"
        )


def check_type(number: int, name: str) -> None:
    """Raise LimitError for a tensor that names no type of its elements."""
    if not number:
        raise LimitError(
            f"has a tensor ({name!r}) of element type 0, which is none; the file is damaged, "
            f"export the model again"
        )


def refuse_nameless(what: str, index: int) -> None:
    """Raise LimitError for something that nodes could not refer to."""
    raise LimitError(
        f"has an {what}, number {index} of its graph, without a name; the file is damaged, export "
        f"the model again"
    )
