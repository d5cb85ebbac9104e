"""Reading a model file without its weights: large tensors are found first and read on their own.

Theory of operation. protobuf wants the whole file in memory and copies every tensor out of it. So
the file is mapped, and the wire format of the few outer messages (model, graph, initializers) is
walked; of a tensor with much raw data everything but that field goes into a smaller file image,
which is parsed as usual. The data is read from the file straight into an array of its own when the
tensor is asked for. Whatever looks odd is left to the parser, which says what is wrong with it.

Source: protobuf's encoding, and the field numbers of onnx.proto.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import ModelError
from ..graph.slabs import Slabs

__all__ = ["LARGE_BYTES", "SKIMMED", "SkimmedFile", "skim"]

LARGE_BYTES = 16 * 1024  # below this a read of its own costs more than the parser's copy
SKIMMED = "aioinfer-skimmed:"
"""What the location of a tensor's data begins with; the place in ``SkimmedFile`` follows."""

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_TYPE, _TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 2, 9, 13, 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1
_STRING = 8
_DATA_FIELDS = frozenset({3, 4, 5, 6, 7, 10, 11, 13, 14})  # data held in another way


@dataclass(frozen=True)
class _Field:
    """A field of a message: its number, wire type, and where it and its content lie."""

    number: int
    wire_type: int
    start: int
    content: int
    end: int


class SkimmedFile:
    """The tensors that were left out of the image, by their places in the file."""

    def __init__(self, path: Path, image: bytes, places: list[tuple[int, int]]) -> None:
        self.image = image
        self._path, self._places = path, places
        self._slabs = Slabs()

    def read(self, location: str) -> np.ndarray:
        """Read a tensor's bytes into a new uint8 vector; ModelError if the file has changed."""
        text = location.removeprefix(SKIMMED)
        index = int(text) if text.isascii() and text.isdecimal() else len(self._places)
        if index >= len(self._places):
            raise ModelError(f"has a tensor whose data is at {location!r}, which is nowhere")
        offset, length = self._places[index]
        data = self._slabs.empty(length)
        with self._path.open("rb", buffering=0) as file:
            file.seek(offset)
            place = 0
            while place < length:
                count = file.readinto(data.data[place:])
                if not count:
                    raise ModelError("has become shorter while it was read")
                place += count
        return data


def skim(path: Path) -> SkimmedFile | None:
    """Find the large tensors of a model file; None if there are none or it is no plain model.

    Raises OSError as ``open`` does. Blocks.
    """
    if sys.byteorder != "little" or path.stat().st_size < LARGE_BYTES:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        places: list[tuple[int, int]] = []
        try:
            pieces = _skim_message(data, 0, len(data), (_MODEL_GRAPH, _GRAPH_INITIALIZER), places)
        except (IndexError, ValueError):
            return None
    return SkimmedFile(path, b"".join(pieces), places) if places else None


def _skim_message(
    data: mmap.mmap, start: int, end: int, path: tuple[int, ...], places: list[tuple[int, int]]
) -> list[bytes]:
    """Copy a message, with the messages that lie along ``path`` made smaller."""
    pieces: list[bytes] = []
    for field in _fields(data, start, end):
        if field.number != path[0] or field.wire_type != _BYTES:
            pieces.append(data[field.start : field.end])
            continue
        if len(path) > 1:
            inner = _skim_message(data, field.content, field.end, path[1:], places)
        else:
            inner = _skim_tensor(data, field.content, field.end, places)
        size = sum(map(len, inner))
        pieces += [_key(field.number, _BYTES), _varint(size), *inner]
    return pieces


def _skim_tensor(
    data: mmap.mmap, start: int, end: int, places: list[tuple[int, int]]
) -> list[bytes]:
    if end - start < LARGE_BYTES:
        return [data[start:end]]
    fields = list(_fields(data, start, end))
    raw = [field for field in fields if field.number == _TENSOR_RAW]
    is_plain = len(raw) == 1 and raw[0].wire_type == _BYTES
    is_plain = is_plain and not any(field.number in _DATA_FIELDS for field in fields)
    is_plain = is_plain and not any(_is_string_type(data, field) for field in fields)
    if not is_plain or raw[0].end - raw[0].content < LARGE_BYTES:
        return [data[start:end]]
    location = f"{SKIMMED}{len(places)}".encode()
    places.append((raw[0].content, raw[0].end - raw[0].content))
    entry = _text_field(1, b"location") + _text_field(2, location)
    kept = [data[field.start : field.end] for field in fields if field is not raw[0]]
    return [
        *kept,
        _text_field(_TENSOR_EXTERNAL, entry),
        _key(_TENSOR_LOCATION, _VARINT) + _varint(_EXTERNAL),
    ]


def _is_string_type(data: mmap.mmap, field: _Field) -> bool:
    if field.number != _TENSOR_TYPE or field.wire_type != _VARINT:
        return False
    return _read_varint(data, field.content)[0] == _STRING


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[_Field]:
    """Walk the fields of a message; raises ValueError or IndexError where it is damaged."""
    place = start
    while place < end:
        key, content = _read_varint(data, place)
        wire_type = key & 7
        if wire_type == _VARINT:
            stop = _read_varint(data, content)[1]
        elif wire_type == _FIXED64:
            stop = content + 8
        elif wire_type == _FIXED32:
            stop = content + 4
        elif wire_type == _BYTES:
            length, content = _read_varint(data, content)
            stop = content + length
        else:
            raise ValueError(f"wire type {wire_type} is not used by ONNX")
        if stop > end:
            raise ValueError("a field sticks out of its message")
        yield _Field(key >> 3, wire_type, place, content, stop)
        place = stop


def _read_varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _text_field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content
