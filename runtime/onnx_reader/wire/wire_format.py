"""protobuf's wire format, walked field by field without parsing what lies inside.

Source: protobuf's encoding (protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import functools
import mmap
import re
from collections.abc import Container, Iterator
from typing import NamedTuple

__all__ = [
    "BYTES",
    "FIXED32",
    "FIXED64",
    "VARINT",
    "Field",
    "field_key",
    "fields",
    "read_varint",
    "text_field",
    "varint",
]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_ALL_BITS = (1 << 64) - 1
_new = tuple.__new__


class Field(NamedTuple):
    """A field of a message: its number, wire type, and where it and its content lie.

    ``value`` is the number of a varint, unsigned; 0 otherwise.
    """

    number: int
    wire_type: int
    start: int
    content: int
    end: int
    value: int


def fields(
    data: bytes | mmap.mmap, start: int, end: int, only: Container[int] | None = None
) -> Iterator[Field]:
    """Walk the fields of a message; raises ValueError or IndexError where it is damaged.

    ``only``: the numbers of those that are given; by default all are.
    """
    place = start
    while place < end:
        key, content, value = data[place], place + 1, 0
        if key > 0x7F:
            key, content = read_varint(data, place)
        wire_type = key & 7
        if wire_type == BYTES:
            length = data[content]
            content += 1
            if length > 0x7F:
                length, content = read_varint(data, content - 1)
            stop = content + length
        elif wire_type == VARINT:
            value, stop = data[content], content + 1
            if value > 0x7F:
                value, stop = read_varint(data, content)
        elif wire_type == FIXED32:
            stop = content + 4
        elif wire_type == FIXED64:
            stop = content + 8
        else:
            raise ValueError(f"wire type {wire_type} is not used by ONNX")
        if stop > end:
            raise ValueError("a field sticks out of its message")
        if only is None or key >> 3 in only:
            # What Field() does, without its call: there is one of them for every number.
            yield _new(Field, (key >> 3, wire_type, place, content, stop, value))
        elif wire_type != BYTES and key < 0x80 and stop < end and data[stop] == key:
            run = _numbers_of(key).match(data, place, end)
            stop = stop if run is None else run.end()
        place = stop


@functools.cache
def _numbers_of(key: int) -> re.Pattern[bytes]:
    """Return what matches fields of one number each that follow each other, of a key of a byte.

    The attributes of a forest have a hundred thousand. It never goes back, so it takes O(bytes).
    """
    one = {VARINT: rb"[\x80-\xff]{0,9}+[\x00-\x7f]", FIXED32: rb".{4}", FIXED64: rb".{8}"}[key & 7]
    return re.compile(rb"(?:" + re.escape(bytes([key])) + one + rb")++", re.DOTALL)


def read_varint(data: bytes | mmap.mmap, place: int) -> tuple[int, int]:
    """Read a number, unsigned, and the place behind it; as protobuf, drops bits above the 64th."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _ALL_BITS, place
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def varint(number: int) -> bytes:
    """Write a number that is not negative."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def field_key(number: int, wire_type: int) -> bytes:
    """Write what a field begins with."""
    return varint(number << 3 | wire_type)


def text_field(number: int, content: bytes) -> bytes:
    """Write a field of text, bytes or a message."""
    return field_key(number, BYTES) + varint(len(content)) + content
