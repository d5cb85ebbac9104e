"""Constants of graphs in a blob: each once, large ones in frames of their own."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import BlobError
from ..graph import DType
from ..graph.mapped_file import in_memory, is_mapped
from .layout import ALIGN_BYTES
from .reader import Blob
from .writer import BlobWriter

__all__ = [
    "TensorReader",
    "TensorWriter",
    "as_list",
    "as_mapping",
    "as_text",
    "damaged",
]

Array = np.ndarray[Any, Any]

OWN_FRAME_BYTES = 4096
"""From here on a constant has a frame of its own, so that only what is used is read."""

MOST_FILLED_BYTES = 16 << 20
"""Of constants of one element each, together, so that a small file does not take much memory."""

_HEAD_BYTES = 256
"""Of two tensors, compared before the others: most that differ do so there."""

_MOST_AXES = 64  # numpy's own limit


class TensorWriter:
    """Collects arrays; equal objects are one tensor. ``finish`` adds what was collected.

    What no run computes with, ``is_shown``, may have stand-ins for weights of any size. What a
    frame of ``outer``, the tensors of the blob around this one, has, is not written again.
    """

    def __init__(
        self, blob: BlobWriter, *, is_shown: bool = False, outer: TensorWriter | None = None
    ) -> None:
        self._blob, self._outer = blob, outer
        self._filled_bytes_left = math.inf if is_shown else MOST_FILLED_BYTES
        self._rows: list[list[Any]] = []
        self._known: dict[int, int] = {}
        self._held: list[Array] = []
        self._frames: dict[int, list[tuple[str, Array]]] = {}
        """Bytes -> frames of that length, and what is in them."""
        self._small = bytearray()

    def add(self, array: Array) -> int:
        """Return the number of a tensor with this content."""
        known = self._known.get(id(array))
        if known is not None:
            return known
        number = self._known[id(array)] = len(self._rows)
        self._held.append(array)
        dtype = DType.of(array.dtype)
        self._rows.append([dtype.label, list(array.shape), self._place(number, array, dtype)])
        return number

    def _place(self, number: int, array: Array, dtype: DType) -> Any:
        if dtype is DType.STRING:
            return {"texts": [text_record(item) for item in array.reshape(-1).tolist()]}
        is_filled = array.size > 1 and not any(array.strides)  # of one element, as stand-ins are
        if is_filled and array.nbytes <= self._filled_bytes_left:
            self._filled_bytes_left -= array.nbytes
            one = np.array(array.flat[0], array.dtype).tobytes()
            return {"filled": base64.b64encode(one).decode()}
        if is_mapped(array):  # of a file that may change before it is written
            array = in_memory(array)
        plain = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if plain.nbytes >= OWN_FRAME_BYTES:
            known = None if self._outer is None else self._outer._frame_with(plain)
            if known is not None:
                return {"outer": known}
            self._blob.add_bytes(f"tensor{number}", plain)
            self._frames.setdefault(plain.nbytes, []).append((f"tensor{number}", plain))
            return {"frame": f"tensor{number}"}
        self._small += bytes(-len(self._small) % ALIGN_BYTES)
        start = len(self._small)
        self._small += plain.tobytes()
        return {"at": start}

    def _frame_with(self, plain: Array) -> str | None:
        """Find the frame that has these bytes."""
        for name, held in self._frames.get(plain.nbytes, ()):
            starts = held[:_HEAD_BYTES], plain[:_HEAD_BYTES]
            if held is plain or (np.array_equal(*starts) and np.array_equal(held, plain)):
                return name
        return None

    def finish(self) -> None:
        """Add the table of tensors, and the frame of the small ones."""
        self._blob.add_json("tensors", self._rows)
        self._blob.add_bytes("small_tensors", bytes(self._small))


class TensorReader:
    """The tensors of a blob by number: read-only arrays over its memory.

    ``is_shown`` as for TensorWriter; ``outer`` is the blob around this one.
    """

    def __init__(self, blob: Blob, *, is_shown: bool = False, outer: Blob | None = None) -> None:
        self._blob, self._outer = blob, outer
        self._filled_bytes_left = math.inf if is_shown else MOST_FILLED_BYTES
        rows = blob.json("tensors")
        if not isinstance(rows, list):
            raise damaged("its tensors are no list")
        self._rows = rows
        self._small = blob.memory("small_tensors")
        self._known: dict[int, Array] = {}

    def get(self, number: Any) -> Array:
        """Return a tensor; raises BlobError where there is none, or its bytes do not fit it."""
        if type(number) is not int or not 0 <= number < len(self._rows):
            raise damaged(f"it has no tensor {number!r}")
        array = self._known.get(number)
        if array is None:
            array = self._known[number] = self._read(number)
        return array

    def outer_frames(self) -> list[str]:
        """Name the frames of the blob around this one in which some of these tensors lie."""
        places = [row[-1] for row in self._rows if isinstance(row, list) and row]
        names = [place.get("outer") for place in places if isinstance(place, Mapping)]
        return [name for name in dict.fromkeys(names) if isinstance(name, str)]

    def _read(self, number: int) -> Array:
        row = self._rows[number]
        if not isinstance(row, list) or len(row) != 3:
            raise damaged(f"tensor {number} is no row of a table")
        label, shape, place = row
        dtype = dtype_of(label)
        lengths = lengths_of(shape, f"tensor {number}")
        count = math.prod(lengths)
        if dtype is DType.STRING:
            return self._texts(number, lengths, count, place)
        size_bytes = count * dtype.item_bytes
        if isinstance(place, Mapping) and "filled" in place:
            self._filled_bytes_left -= size_bytes
            if self._filled_bytes_left < 0:
                raise damaged(f"tensor {number} has {size_bytes} bytes of one element")
            return self._filled(number, dtype, lengths, place)
        memory = self._memory(number, place, size_bytes)
        if memory.nbytes != size_bytes:
            raise damaged(f"tensor {number} has {memory.nbytes} of {size_bytes} bytes")
        return memory.view(dtype.numpy).reshape(lengths)

    def _memory(self, number: int, place: Any, size_bytes: int) -> Array:
        if isinstance(place, Mapping):
            if isinstance(name := place.get("frame"), str):
                return self._blob.memory(name)
            if self._outer is not None and isinstance(name := place.get("outer"), str):
                return self._outer.memory(name)
            start = place.get("at")
            if type(start) is int and start >= 0 and start % ALIGN_BYTES == 0:
                return self._small[start : start + size_bytes]
        raise damaged(f"tensor {number} lies nowhere")

    @staticmethod
    def _filled(number: int, dtype: DType, lengths: list[int], place: Mapping[str, Any]) -> Array:
        one = text_of({"bytes": place["filled"]})
        if len(one) != dtype.item_bytes or math.prod(lengths) >= 1 << 62:
            raise damaged(f"tensor {number} is filled with {len(one)} bytes")
        assert isinstance(one, bytes)
        return np.broadcast_to(np.frombuffer(one, dtype.numpy)[0], lengths)

    @staticmethod
    def _texts(number: int, lengths: list[int], count: int, place: Any) -> Array:
        texts = place.get("texts") if isinstance(place, Mapping) else None
        if not isinstance(texts, list) or len(texts) != count:
            raise damaged(f"tensor {number} does not have {count} texts")
        array = np.empty(count, object)
        array[:] = [text_of(item) for item in texts]
        return array.reshape(lengths)


def text_record(text: str | bytes) -> Any:
    """Write a text, or bytes, so that they are told apart."""
    return {"bytes": base64.b64encode(text).decode()} if isinstance(text, bytes) else str(text)


def text_of(record: Any) -> str | bytes:
    """Read what ``text_record`` wrote."""
    if isinstance(record, str):
        return record
    if isinstance(record, Mapping) and isinstance(record.get("bytes"), str):
        try:
            return base64.b64decode(record["bytes"], validate=True)
        except ValueError as error:
            raise damaged("bytes are no base64") from error
    raise damaged(f"{record!r:.40} is no text")


def dtype_of(label: Any) -> DType:
    """Read an element type; raises BlobError for one that there is not."""
    if not isinstance(label, str) or label.upper() not in DType.__members__:
        raise damaged(f"there is no element type {label!r:.40}")
    return DType[label.upper()]


def lengths_of(shape: Any, what: str) -> list[int]:
    """Read lengths; raises BlobError unless they are a list of counts."""
    if (
        not isinstance(shape, list)
        or len(shape) > _MOST_AXES
        or any(type(length) is not int or not 0 <= length < 1 << 62 for length in shape)
    ):
        raise damaged(f"{what} has the shape {shape!r:.60}")
    return shape


def as_text(record: Any) -> str:
    """Return a text of a record; raises BlobError for anything else."""
    if not isinstance(record, str):
        raise damaged(f"{record!r:.40} is no text")
    return record


def as_list(record: Any) -> list[Any]:
    """Return a list of a record; raises BlobError for anything else."""
    if not isinstance(record, list):
        raise damaged(f"{record!r:.40} is no list")
    return record


def as_mapping(record: Any) -> Mapping[str, Any]:
    """Return a mapping of a record; raises BlobError for anything else."""
    if not isinstance(record, Mapping):
        raise damaged(f"{record!r:.40} is no mapping")
    return record


def damaged(what: str) -> BlobError:
    """Make the error for content that no export writes."""
    return BlobError(f"the blob is damaged: {what}; export it again")
