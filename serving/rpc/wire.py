"""Protobuf messages before they are parsed: how many fields they have, and how long they are. Pure.

A parser makes an object of each field, however short: 64 MiB of empty inputs become gigabytes. So
fields are counted on the bytes first, as far down as a message may have many of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.limits import Limits
from ..protocol.refusal import RefusedError

__all__ = ["Depth", "is_short", "refuse_too_many_fields"]

Depth = Mapping[int, "Depth | None"]
"""By number, the fields to look into; None for one whose length counts instead."""

_MOST_FIELDS_OF_A_TENSOR = 16
_FIELD_BYTES = 2  # at least: a tag, and a value or a length
_VARINT_BYTES = 10


def is_short(data: bytes, limits: Limits) -> bool:
    """Return whether a message has no room for what ``refuse_too_many_fields`` refuses."""
    return len(data) <= min(_FIELD_BYTES * _most_fields(limits), limits.json_bytes)


def _most_fields(limits: Limits) -> int:
    return _MOST_FIELDS_OF_A_TENSOR * limits.tensor_count


def refuse_too_many_fields(data: bytes, depth: Depth, limits: Limits) -> int:
    """Look at a message's fields, and into those that ``depth`` names.

    Returns how many bytes the elements have whose length counts instead of their fields. Raises
    RefusedError for more fields than a request can need, for more elements than JSON could bring
    (``json_bytes``), and for what is no protobuf message as far as it was looked at.
    """
    left, element_bytes = _most_fields(limits), 0
    waiting: list[tuple[int, int, Depth]] = [(0, len(data), depth)]
    while waiting:
        place, end, inner = waiting.pop()
        while place < end:
            left -= 1
            if left < 0:
                raise RefusedError("the message has more fields than are taken", status=413)
            tag, place = _varint(data, place, end)
            number, kind = tag >> 3, tag & 7
            size, place = _size(data, place, end, kind)
            if kind == 2 and number in inner:
                within = inner[number]
                if within is not None:
                    waiting.append((place, place + size, within))
                elif size > limits.json_bytes:
                    raise RefusedError(
                        f"contents of {size} bytes; at most {limits.json_bytes} are taken: send "
                        f"tensors in raw_input_contents",
                        status=413,
                    )
                else:
                    element_bytes += size
            place += size
            if place > end:
                raise _garbled()
    return element_bytes


def _size(data: bytes, place: int, end: int, kind: int) -> tuple[int, int]:
    """Return how long a field's value is, and where it begins."""
    if kind == 2:
        return _varint(data, place, end)
    if kind == 0:
        return 0, _varint(data, place, end)[1]
    if kind in (1, 5):
        return (8 if kind == 1 else 4), place
    raise _garbled()


def _varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    value = 0
    for index in range(min(_VARINT_BYTES, end - place)):
        byte = data[place + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, place + index + 1
    raise _garbled()


def _garbled() -> RefusedError:
    return RefusedError("the message is no protobuf message of this call")
