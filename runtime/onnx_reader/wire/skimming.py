"""Reading a model file without its weights: large tensors are found first and read on their own.

protobuf wants the whole file in memory and copies every tensor out of it. So the wire format of the
few outer messages (model, graph, initializers) is walked first (``file_structure``); of a tensor
with much raw data everything but that field goes into a smaller file image, which is parsed as
usual. The data is read from the file straight into an array of its own when the tensor is asked
for.

Source: the field numbers of onnx.proto.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import numpy as np

from ....errors import ModelError
from ...graph.slabs import Slabs
from .file_structure import LARGE_BYTES, copy_structure, large_raw, read_range
from .wire_format import BYTES, VARINT, field_key, fields, text_field, varint

__all__ = ["SKIMMED", "SkimmedFile", "skim"]

SKIMMED = "aioinfer-skimmed:"
"""What the location of a tensor's data begins with; the place in ``SkimmedFile`` follows."""

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_EXTERNAL = 1


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
        try:
            with self._path.open("rb", buffering=0) as file:
                read_range(file, data.data, offset)
        except OSError as error:
            raise ModelError(f"cannot be read: {error.strerror or error}") from error
        return data


def skim(path: Path) -> SkimmedFile | None:
    """Find the large tensors of a model file; None if there are none or it is no plain model.

    Raises OSError as ``open`` does. Blocks.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if sys.byteorder != "little" or size < LARGE_BYTES:
            return None
        data = copy_structure(file, size)
    with data:
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
    for field in fields(data, start, end):
        if field.number != path[0] or field.wire_type != BYTES:
            pieces.append(data[field.start : field.end])
            continue
        if len(path) > 1:
            inner = _skim_message(data, field.content, field.end, path[1:], places)
        else:
            inner = _skim_tensor(data, field.content, field.end, places)
        size = sum(map(len, inner))
        pieces += [field_key(field.number, BYTES), varint(size), *inner]
    return pieces


def _skim_tensor(
    data: mmap.mmap, start: int, end: int, places: list[tuple[int, int]]
) -> list[bytes]:
    if end - start < LARGE_BYTES:
        return [data[start:end]]
    parts = list(fields(data, start, end))
    raw = large_raw(parts)
    if raw is None:
        return [data[start:end]]
    location = f"{SKIMMED}{len(places)}".encode()
    places.append((raw.content, raw.end - raw.content))
    entry = text_field(1, b"location") + text_field(2, location)
    kept = [data[field.start : field.end] for field in parts if field is not raw]
    return [
        *kept,
        text_field(_TENSOR_EXTERNAL, entry),
        field_key(_TENSOR_LOCATION, VARINT) + varint(_EXTERNAL),
    ]
