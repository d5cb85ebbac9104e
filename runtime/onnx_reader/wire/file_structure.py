"""A model file without the data of its large tensors, copied: no other process can change a copy.

A mapping of a file that is cut short ends the process that looks at it. So what is walked, the wire
format of the few outer messages (model, graph, initializers) and all that is small, is read into
memory as the walk goes along. The copy has the file's places; where the data of large tensors would
be, it has pages of zeros that were never touched, and so are not there.

Source: the field numbers of onnx.proto.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Sequence
from io import FileIO

from .limits import graph_fields, model_fields
from .wire_format import BYTES, VARINT, Field, fields

__all__ = ["LARGE_BYTES", "copy_structure", "large_raw", "read_range"]

LARGE_BYTES = 16 * 1024  # below this a read of its own costs more than the parser's copy
_AHEAD_BYTES = 16 * 1024
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_TYPE, _TENSOR_RAW = 2, 9
_STRING = 8
_DATA_FIELDS = frozenset({3, 4, 5, 6, 7, 10, 11, 13, 14})  # data held in another way


def copy_structure(file: FileIO, size: int) -> mmap.mmap:
    """Copy the first ``size`` bytes of a file but the data of large tensors, which reads as zeros.

    Which tensors those are says ``large_raw``. Raises OSError, also if the file is shorter, and
    LimitError for what is too large to read.
    """
    copy = mmap.mmap(-1, size)
    walked = _Walked(file, copy, size)
    try:
        for item in model_fields(walked, 0, size):  # type: ignore[arg-type]
            if item.number == _MODEL_GRAPH and item.wire_type == BYTES:
                for part in graph_fields(walked, item.content, item.end):  # type: ignore[arg-type]
                    if part.number == _GRAPH_INITIALIZER and part.wire_type == BYTES:
                        walked.walk_tensor(part)
    except (IndexError, ValueError):  # it is damaged, which the parser will say
        pass
    walked.read_until(size)
    return copy


def large_raw(parts: Sequence[Field]) -> Field | None:
    """Find the data of a tensor that is large and held in the plain way, in one piece of bytes."""
    raw = [part for part in parts if part.number == _TENSOR_RAW]
    if len(raw) != 1 or raw[0].wire_type != BYTES or raw[0].end - raw[0].content < LARGE_BYTES:
        return None
    if any(part.number in _DATA_FIELDS or _is_string_type(part) for part in parts):
        return None
    return raw[0]


def read_range(file: FileIO, memory: memoryview, start: int) -> None:
    """Fill memory with the bytes of a file from ``start``; raises OSError if it has too few."""
    file.seek(start)
    place = 0
    while place < len(memory):
        count = file.readinto(memory[place:])
        if not count:
            raise OSError(errno.EIO, "it has become shorter while it was read")
        place += count


class _Walked:
    """The copy, filled as far as it was looked at. What lies before ``_end`` is done with."""

    def __init__(self, file: FileIO, copy: mmap.mmap, size: int) -> None:
        self._file, self._copy, self._size = file, copy, size
        self._end = 0

    def __getitem__(self, place: int) -> int:
        if place >= self._end:
            self.read_until(place + 1)
        return self._copy[place]

    def read_until(self, end: int) -> None:
        """Copy what lies between what is done with and here, and some more."""
        if end > self._end:
            wanted = min(self._size, max(end, self._end + _AHEAD_BYTES))
            self._copy_range(self._end, wanted)
            self._end = max(end, wanted)

    def walk_tensor(self, tensor: Field) -> None:
        """Leave the data of a tensor out, if it is large and plain."""
        if tensor.end - tensor.content < LARGE_BYTES:
            return
        parts: list[Field] = []
        left_out: list[tuple[int, int]] = []
        for part in fields(self, tensor.content, tensor.end):  # type: ignore[arg-type]
            parts.append(part)
            if part.number == _TENSOR_RAW and part.end > self._end:
                left_out.append((self._end, part.end))
                self._end = part.end
        if large_raw(parts) is None:
            for start, end in left_out:
                self._copy_range(start, end)

    def _copy_range(self, start: int, end: int) -> None:
        with memoryview(self._copy) as memory, memory[start:end] as wanted:
            read_range(self._file, wanted, start)


def _is_string_type(part: Field) -> bool:
    is_type = part.number == _TENSOR_TYPE and part.wire_type == VARINT
    return is_type and part.value == _STRING
