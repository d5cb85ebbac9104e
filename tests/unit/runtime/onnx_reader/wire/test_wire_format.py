"""Walking protobuf's fields without protobuf."""

from __future__ import annotations

import mmap
import random

import pytest

from aioinfer.runtime.onnx_reader.wire import wire_format
from aioinfer.runtime.onnx_reader.wire.wire_format import (
    FIXED32,
    FIXED64,
    VARINT,
    field_key,
    fields,
    text_field,
    varint,
)


def message(seed: int) -> bytes:
    """Draw runs of fields of all wire types, of numbers below and above 15."""
    chance, made = random.Random(seed), b""
    for _ in range(30):
        number, kind = chance.choice([1, 7, 8, 15, 16, 300]), chance.choice(["v", "4", "8", "t"])
        for _ in range(chance.choice([1, 1, 2, 50])):
            if kind == "v":
                count = chance.choice([0, 127, 128, 99999, 2**64 - 1])
                made += field_key(number, VARINT) + varint(count)
            elif kind == "t":
                made += text_field(number, chance.randbytes(chance.choice([0, 3, 200])))
            else:
                wire_type, size = (FIXED32, 4) if kind == "4" else (FIXED64, 8)
                made += field_key(number, wire_type) + chance.randbytes(size)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_only_some_fields_are_those_of_all(seed: int) -> None:
    data = message(seed)
    with mmap.mmap(-1, len(data)) as mapped:
        mapped[:] = data
        for only in ({7}, {8, 300}, {16}, set()):
            wanted = [item for item in fields(data, 0, len(data)) if item.number in only]
            assert list(fields(data, 0, len(data), only)) == wanted
            assert list(fields(mapped, 0, len(data), only)) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_found_among_fields_that_are_not_asked_for(seed: int) -> None:
    chance, whole = random.Random(seed), message(seed)
    for _ in range(50):
        data = bytearray(whole[: chance.randrange(len(whole))])
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
        assert _told(bytes(data), None) == _told(bytes(data), {99})


def _told(data: bytes, only: set[int] | None) -> type[Exception] | None:
    try:
        list(fields(data, 0, len(data), only))
    except (IndexError, ValueError) as error:
        return type(error)
    return None


def test_numbers_that_are_not_asked_for_are_passed_over_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = (field_key(8, VARINT) + varint(300)) * 1000 + text_field(5, b"x")
    counted: list[int] = []
    read = wire_format.read_varint
    monkeypatch.setattr(
        wire_format, "read_varint", lambda *given: counted.append(1) or read(*given)
    )
    assert [item.number for item in fields(data, 0, len(data), {5})] == [5]
    assert len(counted) <= 2
