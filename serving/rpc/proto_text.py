"""Message classes from the text of ``open_inference.proto``.

They live in a pool of descriptors of their own: a client's library in the same process has messages
of the same names in the default one, which takes no second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["PROTO", "Method", "message_classes", "methods"]

PROTO = Path(__file__).with_name("open_inference.proto")

Method = tuple[str, str, str, bool]
"""A call's name, the names of its request and response, and whether both are streams."""

_RPC = re.compile(r"rpc (\w+)\((?:stream )?(\w+)\) returns \((stream )?(\w+)\);")
_TOKEN = re.compile(r"\w+|[{};=<>,]")
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
}


def _source() -> str:
    return re.sub(r"//[^\n]*", "", PROTO.read_text(encoding="utf-8"))


def methods() -> list[Method]:
    """List the calls of the service."""
    return [(match[1], match[2], match[4], bool(match[3])) for match in _RPC.finditer(_source())]


def message_classes() -> Mapping[str, Any]:
    """Make the class of each message, by its name. Raises ValueError for what it cannot read."""
    file = descriptor_pb2.FileDescriptorProto(
        name="aioinfer/open_inference.proto", package="inference", syntax="proto3"
    )
    text = _source()
    for match in re.finditer(r"enum (\w+) \{([^}]*)\}", text):
        made = file.enum_type.add(name=match[1])
        for name, number in re.findall(r"(\w+) = (\d+);", match[2]):
            made.value.add(name=name, number=int(number))
    enums = {made.name for made in file.enum_type}
    for match in re.finditer(r"message (\w+) \{", text):
        tokens = _TOKEN.finditer(text, match.end())
        _read_fields(file.message_type.add(name=match[1]), (token[0] for token in tokens))
    for field in (field for message in file.message_type for field in message.field):
        if field.type_name.rpartition(".")[2] in enums:
            field.type = _Field.TYPE_ENUM
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"inference.{message.name}")
        )
        for message in file.message_type
    }


def _read_fields(message: Any, tokens: Iterator[str], oneof: int | None = None) -> None:
    """Read fields until the brace that closes them."""
    for word in tokens:
        if word == "}":
            return
        if word == "oneof":
            message.oneof_decl.add(name=next(tokens))
            _expect(tokens, "{")
            _read_fields(message, tokens, len(message.oneof_decl) - 1)
            continue
        is_repeated = word == "repeated"
        kind = next(tokens) if is_repeated else word
        value = _map_value(tokens) if kind == "map" else None
        name = next(tokens)
        _expect(tokens, "=")
        field = message.field.add(name=name, number=int(next(tokens)))
        _expect(tokens, ";")
        field.label = _Field.LABEL_REPEATED if is_repeated or value else _Field.LABEL_OPTIONAL
        if oneof is not None:
            field.oneof_index = oneof
        _set_type(field, kind if value is None else _add_entry(message, name, value))
    raise ValueError(f"{PROTO.name}: message {message.name} is not closed")


def _map_value(tokens: Iterator[str]) -> str:
    """Read ``<string, VALUE>``."""
    for wanted in ("<", "string", ","):
        _expect(tokens, wanted)
    value = next(tokens)
    _expect(tokens, ">")
    return value


def _add_entry(message: Any, field: str, value: str) -> str:
    """Add the message that a map is a list of; return its name."""
    name = "".join(part.title() for part in field.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, kind) in enumerate((("key", "string"), ("value", value)), start=1):
        added = entry.field.add(name=part, number=number, label=_Field.LABEL_OPTIONAL)
        _set_type(added, kind)
    return f"{message.name}.{name}"


def _set_type(field: Any, kind: str) -> None:
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".inference.{kind}"


def _expect(tokens: Iterator[str], wanted: str) -> None:
    found = next(tokens, "")
    if found != wanted:
        raise ValueError(f"{PROTO.name}: {wanted!r} is wanted, not {found!r}")
