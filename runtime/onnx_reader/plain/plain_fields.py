"""Fields of the wire format that are what they have to be: messages, numbers, lists and texts."""

from __future__ import annotations

import mmap
import struct

from ..wire.wire_format import BYTES, FIXED32, VARINT, Field, fields, read_varint

__all__ = ["Data", "NotPlainError", "cut", "entry", "floats", "integer", "integers", "message"]

Data = bytes | mmap.mmap


class NotPlainError(Exception):
    """Something here is for onnx to read, or to complain about."""


def message(item: Field) -> Field:
    """Return the field of a message, or of bytes; raises NotPlainError for any other."""
    if item.wire_type != BYTES:
        raise NotPlainError(f"field {item.number} is no message")
    return item


def cut(data: Data, item: Field) -> bytes:
    """Copy a message, or bytes; what is small is quicker to walk than a mapped file."""
    return data[message(item).content : item.end]


def integer(item: Field) -> int:
    """Return a number of 64 bits with its sign."""
    if item.wire_type != VARINT:
        raise NotPlainError(f"field {item.number} is no number")
    return item.value - (1 << 64) if item.value >> 63 else item.value


def integers(data: Data, item: Field) -> list[int]:
    """Return one number, or several that are packed."""
    if item.wire_type == VARINT:
        return [integer(item)]
    found = []
    place = message(item).content
    while place < item.end:
        value, place = read_varint(data, place)
        found.append(value - (1 << 64) if value >> 63 else value)
    if place != item.end:
        raise NotPlainError("a number sticks out of its list")
    return found


def floats(data: bytes, item: Field) -> list[float]:
    """Return one number of 32 bits, or several that are packed."""
    if item.wire_type != FIXED32:
        message(item)
    count = (item.end - item.content) // 4
    return list(struct.unpack_from(f"<{count}f", data[item.content : item.end]))


def entry(data: bytes) -> tuple[str, str]:
    """Return the key and the text of an entry of metadata."""
    pair = {1: "", 2: ""}
    for item in fields(data, 0, len(data)):
        pair[item.number] = cut(data, item).decode()
    return pair[1], pair[2]
